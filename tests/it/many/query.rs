//! A batch loader that records its calls, and ends them when and how the test says.

use std::sync::{Arc, Mutex};

use bellwether_testkit::caches::NEVER;
use bellwether_testkit::loaders::Refusal;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Answers each item with ten times its number. Clones are one loader.
#[derive(Clone, Debug)]
pub(super) struct Query(Arc<Script>);

#[derive(Debug)]
struct Script {
    end: Mutex<End>,
    calls: watch::Sender<Vec<Vec<u64>>>,
    /// As many calls may end as there are permits.
    gate: Semaphore,
    dropped: watch::Sender<usize>,
}

/// How calls end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answer,
    /// It fails for one item.
    FailFor(u64),
    /// It fails as a whole.
    Fail,
    Panic,
    PanicInCall,
    OneTooFew,
    OneTooMany,
}

impl Query {
    /// Answers at once.
    pub(super) fn new() -> Self {
        Self::scripted(Semaphore::MAX_PERMITS)
    }

    /// Ends no call before [`let_go`](Self::let_go).
    pub(super) fn gated() -> Self {
        Self::scripted(0)
    }

    fn scripted(permits: usize) -> Self {
        Self(Arc::new(Script {
            end: Mutex::new(End::Answer),
            calls: watch::Sender::default(),
            gate: Semaphore::new(permits),
            dropped: watch::Sender::new(0),
        }))
    }

    pub(super) fn ending(end: End) -> Self {
        let query = Self::new();
        query.ends_by(end);
        query
    }

    /// From now on calls end like this.
    pub(super) fn ends_by(&self, end: End) {
        *self.0.end.lock().unwrap() = end;
    }

    pub(super) fn let_go(&self, calls: usize) {
        self.0.gate.add_permits(calls);
    }

    /// Waits until as many calls have begun.
    pub(super) async fn has_begun(&self, calls: usize) {
        let mut begun = self.0.calls.subscribe();
        let enough = timeout(NEVER, begun.wait_for(|begun| begun.len() >= calls)).await;
        drop(enough.expect("a call begins"));
    }

    /// What each call was for, sorted, in the order in which they began.
    pub(super) fn calls(&self) -> Vec<Vec<u64>> {
        self.0.calls.borrow().clone()
    }

    /// What was loaded, by whatever call, sorted.
    pub(super) fn loaded(&self) -> Vec<u64> {
        let mut loaded = self.calls().concat();
        loaded.sort_unstable();
        loaded
    }

    /// How many calls were dropped before they ended.
    pub(super) fn dropped(&self) -> usize {
        *self.0.dropped.borrow()
    }

    fn end(&self) -> End {
        *self.0.end.lock().unwrap()
    }
}

type Answers = Vec<Result<u64, Refusal>>;

impl Query {
    pub(super) fn load(&self, items: Vec<u64>) -> BoxFuture<'static, Result<Answers, Refusal>> {
        let mut sorted = items.clone();
        sorted.sort_unstable();
        self.0.calls.send_modify(|calls| calls.push(sorted));
        assert_ne!(self.end(), End::PanicInCall, "scripted");
        let query = self.clone();
        let running = Running { query: self.clone(), ended: false };
        Box::pin(async move {
            let mut running = running;
            query.0.gate.acquire().await.expect("the gate is never closed").forget();
            running.ended = true;
            let mut answers: Vec<_> = items.iter().map(|item| query.answer(*item)).collect();
            match query.end() {
                End::Fail => return Err(Refusal(0)),
                End::OneTooFew => drop(answers.pop()),
                End::OneTooMany => answers.push(Ok(0)),
                End::Panic => panic!("scripted"),
                End::Answer | End::FailFor(_) | End::PanicInCall => {}
            }
            Ok(answers)
        })
    }

    fn answer(&self, item: u64) -> Result<u64, Refusal> {
        match self.end() {
            End::FailFor(failing) if failing == item => Err(Refusal(item as usize)),
            _ => Ok(item * 10),
        }
    }
}

/// A call that runs.
struct Running {
    query: Query,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.query.0.dropped.send_modify(|dropped| *dropped += 1);
        }
    }
}
