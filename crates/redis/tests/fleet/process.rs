//! The test's side of workers: it commands, stops and kills them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bellwether_testkit::processes;

use crate::answer::Answer;
use crate::fared::Fared;
use crate::messages::{Command, Event, Game, Reply, Report, Setup, Storm, TagGame, TagOrder};

/// A process of the fleet. Killed and reaped on drop.
pub(crate) struct Worker {
    process: processes::Worker<Command, Reply>,
    /// How many bursts of one caller there were.
    alone: AtomicU64,
}

impl Worker {
    pub(crate) async fn start(setup: Setup) -> Self {
        let process = processes::Worker::start("worker::works", &setup).await;
        Self { process, alone: AtomicU64::new(0) }
    }

    /// Lets callers ask for a key. When this returns, each has been polled once.
    pub(crate) async fn begin(&self, burst: u64, key: u64, callers: usize) {
        let begin = Command::Begin { burst, key, callers };
        self.must(begin).await;
    }

    /// Drops some callers of a burst.
    pub(crate) async fn leave(&self, burst: u64, callers: Vec<usize>) {
        self.must(Command::Leave { burst, callers }).await;
    }

    /// The answers to those callers of a burst that have not left.
    pub(crate) async fn end(&self, burst: u64) -> Vec<Answer> {
        answers(self.ask(Command::End { burst }).await)
    }

    /// Lets callers come and go, and gives the answers to those that were answered before.
    pub(crate) async fn waver(&self, key: u64, stays: Vec<u64>) -> Vec<Answer> {
        answers(self.ask(Command::Waver { key, stays }).await)
    }

    /// One caller's answer.
    pub(crate) async fn read(&self, key: u64) -> Answer {
        let burst = self.alone.fetch_add(1, Ordering::Relaxed) + A_READ;
        self.begin(burst, key, 1).await;
        self.end(burst).await.remove(0)
    }

    pub(crate) async fn invalidate(&self, key: u64) {
        self.must(Command::Invalidate { key }).await;
    }

    pub(crate) async fn play(&self, game: Game) -> Vec<Event> {
        self.history(Command::Play(game)).await
    }

    pub(crate) async fn play_tags(&self, game: TagGame) -> Vec<Event> {
        self.history(Command::PlayTags(game)).await
    }

    /// Gives an order about rows with tags.
    pub(crate) async fn about_tags(&self, order: TagOrder) -> Vec<Event> {
        self.history(Command::Tags(order)).await
    }

    pub(crate) async fn storm(&self, storm: Storm) -> Fared {
        match self.ask(Command::Storm(storm)).await {
            Reply::Fared(fared) => fared,
            other => panic!("no storm: {other:?}"),
        }
    }

    pub(crate) async fn report(&self) -> Report {
        match self.ask(Command::Report).await {
            Reply::Report(report) => report,
            other => panic!("no report: {other:?}"),
        }
    }

    /// Waits until it has no requests and no loads under way.
    pub(crate) async fn is_idle(&self) {
        self.reports("the end of all flights", |report| report.in_flight == 0).await;
    }

    /// Waits until it has repeated all invalidations that had failed.
    pub(crate) async fn has_replayed(&self) {
        self.reports("the end of the replay", |report| report.kept == 0).await;
    }

    async fn reports(&self, what: &str, is_it: impl Fn(&Report) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_it(&self.report().await) {
            assert!(Instant::now() < deadline, "{what} never comes");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Kills it without a clean shutdown.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Freezes it. When this returns, none of its threads runs.
    pub(crate) fn stop(&self) {
        self.process.stop();
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.process.resume();
    }

    async fn history(&self, command: Command) -> Vec<Event> {
        match self.ask(command).await {
            Reply::History(events) => events,
            other => panic!("no history: {other:?}"),
        }
    }

    async fn must(&self, command: Command) {
        let reply = self.process.ask(&command).await;
        assert!(matches!(reply, Reply::Done), "{command:?}: {reply:?}");
    }

    async fn ask(&self, command: Command) -> Reply {
        self.process.ask(&command).await
    }
}

fn answers(reply: Reply) -> Vec<Answer> {
    match reply {
        Reply::Answers(answers) => answers,
        other => panic!("no answers: {other:?}"),
    }
}

/// Bursts of a test's own have smaller numbers.
const A_READ: u64 = 1 << 32;

/// How long a flight may last. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two reports.
const PAUSE: Duration = Duration::from_millis(2);
