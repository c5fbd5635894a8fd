//! A session: turns on all kinds of servers, one after the other, until the time is over.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::args::Args;
use crate::judge::{Judged, PROMISES};
use crate::row::mixed;
use crate::state::{self, Session, State};
use crate::turn::{BROKEN_OFF, Turn, shown};
use crate::{Fault, report};

/// A turn that is shorter proves little.
const SHORTEST: Duration = Duration::from_secs(3);

/// Runs a session. Returns whether all promises were kept in it.
pub(crate) async fn run(args: &Args) -> Result<bool, Fault> {
    let mut state = State::open(&args.state)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    let commit = args.commit.clone().unwrap_or_else(commit);
    eprintln!("proof: seed {seed}, commit {commit}");
    let (workers, redis) = (args.workers, redis_version());
    state.sessions.push(Session { commit, seed, workers, redis, ..Session::default() });
    let stop = Arc::new(AtomicBool::new(false));
    tokio::spawn({
        let stop = Arc::clone(&stop);
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    let until = Instant::now() + Duration::from_secs_f64(60.0 * args.minutes);
    let (mut violations, mut broken_off) = (0, 0);
    for (number, kind) in (0..).zip(args.servers.iter().copied().cycle()) {
        let left = until.saturating_duration_since(Instant::now());
        if left < SHORTEST || stop.load(Ordering::Relaxed) {
            break;
        }
        let length = length(args, number, left);
        let turn = Arc::new(Turn::new(kind, length, mixed(seed, number), Arc::clone(&stop))?);
        let began = Instant::now();
        let judged = play(args, &turn, &state).await?;
        violations += judged.violations.len();
        broken_off += judged.tally.of(BROKEN_OFF);
        state.add(&judged, kind.name(), began.elapsed().as_secs());
        state::record(&args.state, &judged.violations)?;
        state.save(&args.state)?;
        write_report(args)?;
    }
    summarize(&state, violations, broken_off);
    Ok(violations == 0 && broken_off == 0)
}

/// So that each kind of servers has its turn.
fn length(args: &Args, number: u64, left: Duration) -> Duration {
    let kinds = args.servers.len() as u64;
    let longest = Duration::from_secs_f64(60.0 * args.turn);
    let turns = (kinds - number % kinds) as u32;
    (left / turns).min(longest).max(SHORTEST)
}

/// Writes the report of what the state holds.
pub(crate) fn write_report(args: &Args) -> Result<(), Fault> {
    let state = State::open(&args.state)?;
    let dir = args.report.as_ref().unwrap_or(&args.state);
    Ok(report::write(dir, &state)?)
}

async fn play(args: &Args, turn: &Arc<Turn>, state: &State) -> Result<Judged, Fault> {
    let (done, mut judged) = oneshot::channel();
    let (args, runtime) = (args.clone(), Handle::current());
    let thread = {
        let turn = Arc::clone(turn);
        thread::spawn(move || _ = done.send(turn.run(&args, &runtime)))
    };
    let began = Instant::now();
    let before = state.tally.all_reads();
    let judged = loop {
        tokio::select! {
            judged = &mut judged => break judged?,
            () = sleep(Duration::from_secs(1)) => progress(turn, began.elapsed(), before),
        }
    };
    thread.join().map_err(|_| "a turn has panicked")?;
    Ok(judged?)
}

/// One line, which replaces the one before on a terminal.
fn progress(turn: &Turn, elapsed: Duration, before: u64) {
    let (tally, suspects) = turn.hub.so_far();
    let (faults, on) = shown(turn);
    let reads = tally.all_reads() + before;
    let line = format!(
        "{} {}/{} s, {:.2} M reads, {} loads, {suspects} to be judged, {faults} faults{}",
        turn.kind.name(),
        elapsed.as_secs(),
        turn.length.as_secs(),
        reads as f64 / 1e6,
        tally.of("loads"),
        on.map(|fault| format!(", now: {fault}")).unwrap_or_default(),
    );
    let mut error = std::io::stderr().lock();
    if error.is_terminal() {
        // A line may be longer than this one.
        let _ = write!(error, "\r{line:<118}").and_then(|()| error.flush());
    } else if elapsed.as_secs().is_multiple_of(15) {
        let _ = writeln!(error, "{line}");
    }
}

fn summarize(state: &State, violations: usize, broken_off: u64) {
    eprintln!();
    for (promise, text) in PROMISES {
        let verdict = state.verdict(promise);
        let bound =
            verdict.bound().map(|bound| format!(", at most {bound:.1e}")).unwrap_or_default();
        println!("{} of {}{bound}: {text}", verdict.violated, verdict.checked);
    }
    if violations > 0 {
        println!("{violations} violations in this session: see violations.jsonl of the state");
    }
    if broken_off > 0 {
        println!("{broken_off} turns of this session were broken off: see above");
    }
}

/// What git says of the sources of this program.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new("git").arg("-C").arg(here).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => commit + " with changes",
    }
}

fn redis_version() -> String {
    let server =
        std::env::var("BELLWETHER_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let output = Command::new(server).arg("--version").output();
    let text =
        output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    version.unwrap_or("unknown").to_owned()
}
