//! Looks of many callers at once, asked together.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::lane::Lane;
use super::link::Question;
use super::reply::{self, Seen};
use super::script::Scripts;
use super::server_clock::ServerClock;
use super::trouble::Trouble;

/// A lane whose looks go together.
///
/// Who looks while nobody else does asks at once. Who looks while others do goes with whoever is
/// about to look as well: a task lets the scheduler pass once, and then asks for all of them by one
/// command. A caller waits for no round trip of others, and the connection has one message to
/// handle where it had one per caller.
#[derive(Clone, Debug)]
pub(super) struct Looks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lane: Lane,
    scripts: Arc<Scripts>,
    clock: Arc<ServerClock>,
    /// Whether it asks for lives, too. They cost the server more, so it does not until it has met an
    /// entry that cannot be judged without.
    asks_for_lives: AtomicBool,
    /// How many callers look.
    looking: AtomicUsize,
    /// Who goes next. While anybody is here, a task is about to take them all. Never held across an
    /// `.await`.
    next: Mutex<Next>,
}

/// Looks for which a task is about to ask.
#[derive(Debug, Default)]
struct Next {
    looks: Vec<Look>,
    /// Where that task runs, while there are any.
    on: Option<Id>,
}

/// A look for which a task asks.
#[derive(Debug)]
struct Look {
    name: Vec<u8>,
    answer: oneshot::Sender<Looked>,
}

/// What is seen, if anything is there.
type Looked = Result<Option<Seen>, Trouble>;

impl Looks {
    pub(super) fn over(lane: Lane, scripts: Arc<Scripts>, clock: Arc<ServerClock>) -> Self {
        let asks_for_lives = AtomicBool::new(false);
        let (looking, next) = (AtomicUsize::new(0), Mutex::default());
        Self(Arc::new(Shared { lane, scripts, clock, asks_for_lives, looking, next }))
    }

    /// For all that is no look.
    pub(super) fn lane(&self) -> &Lane {
        &self.0.lane
    }

    /// From now on, looks tell what is left of a life.
    pub(super) fn ask_for_lives(&self) {
        self.0.asks_for_lives.store(true, Ordering::Relaxed);
    }

    /// What is stored under a name. What is no string counts as nothing.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn look(&self, name: Vec<u8>) -> Looked {
        let looking = Looking::begin(&self.0);
        let joined = if looking.is_alone { None } else { self.join(&name) };
        if let Some(answer) = joined
            && let Ok(looked) = answer.await
        {
            return looked;
        }
        // Nobody to go with, or the task was dropped with its runtime. In a box, so that those who
        // go with others need no room for it.
        let seen = Box::pin(self.ask(vec![name])).await?;
        seen.into_iter().next().ok_or(Trouble::Malformed)
    }

    /// What is stored under a name, with what is left of its life.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub(super) async fn look_with_life(&self, name: Vec<u8>) -> Looked {
        let seen = self.ask_with_lives(vec![name]).await?;
        seen.into_iter().next().ok_or(Trouble::Malformed)
    }

    /// Goes with the next ones, if there is a runtime for their task. It has to be that of the
    /// caller: another one may not be driven for a long time.
    fn join(&self, name: &[u8]) -> Option<oneshot::Receiver<Looked>> {
        let runtime = Handle::try_current().ok()?;
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut next = self.0.next();
            if next.on.is_some_and(|on| on != runtime.id()) {
                return None;
            }
            next.on = Some(runtime.id());
            next.looks.push(Look { name: name.to_vec(), answer });
            next.looks.len() == 1
        };
        if is_first {
            runtime.spawn(Departure { looks: self.clone(), has_left: false }.run());
        }
        Some(answered)
    }

    async fn ask_for(&self, together: Vec<Look>) {
        let (names, callers): (Vec<_>, Vec<_>) =
            together.into_iter().map(|look| (look.name, look.answer)).unzip();
        let answers = match self.ask(names).await {
            Ok(seen) => seen.into_iter().map(Ok).collect(),
            Err(trouble) => vec![Err(trouble); callers.len()],
        };
        for (caller, answer) in callers.into_iter().zip(answers) {
            // It may have gone.
            _ = caller.send(answer);
        }
    }

    async fn ask(&self, names: Vec<Vec<u8>>) -> Result<Vec<Option<Seen>>, Trouble> {
        let count = names.len();
        let seen = if self.0.asks_for_lives.load(Ordering::Relaxed) {
            Some(self.ask_with_lives(names).await?)
        } else {
            let mut mget = redis::cmd("MGET");
            mget.arg(names);
            reply::seen(self.0.lane.ask(&Question::Command(mget)).await?)
        };
        seen.filter(|seen| seen.len() == count).ok_or(Trouble::Malformed)
    }

    async fn ask_with_lives(&self, names: Vec<Vec<u8>>) -> Result<Vec<Option<Seen>>, Trouble> {
        let Shared { lane, scripts, clock, .. } = &*self.0;
        let look = Question::Script { source: &scripts.look, keys: names, args: Vec::new() };
        let asked_at = Instant::now();
        let reply = reply::seen_with_lives(lane.ask(&look).await?);
        let (now, seen) = reply.ok_or(Trouble::Malformed)?;
        clock.note(asked_at, now);
        Ok(seen)
    }
}

impl Shared {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that looks.
struct Looking<'a> {
    shared: &'a Shared,
    is_alone: bool,
}

impl<'a> Looking<'a> {
    fn begin(shared: &'a Shared) -> Self {
        Self { shared, is_alone: shared.looking.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.shared.looking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task that asks for those who go next. If it is dropped before, they ask for themselves.
struct Departure {
    looks: Looks,
    has_left: bool,
}

impl Departure {
    async fn run(mut self) {
        yield_now().await;
        self.has_left = true;
        let mut next = mem::take(&mut *self.looks.0.next()).looks;
        if next.len() <= AT_ONCE {
            return self.looks.ask_for(next).await;
        }
        let mut asked = Vec::with_capacity(next.len().div_ceil(AT_ONCE));
        while !next.is_empty() {
            let together = next.drain(..next.len().min(AT_ONCE)).collect();
            asked.push(self.looks.ask_for(together));
        }
        join_all(asked).await;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if !self.has_left {
            let left = mem::take(&mut *self.looks.0.next());
            // After the lock: who waits is woken by it.
            drop(left);
        }
    }
}

/// How many looks one command asks for: a reply should not be so long that others wait for it.
const AT_ONCE: usize = 64;
