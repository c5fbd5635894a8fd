//! A loader that counts, and ends its loads when and how the test says.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tower::Service;

use crate::wait::NEVER;

/// Answers each load with its number: the first with 1, the second with 2. Clones are one loader.
#[derive(Clone, Debug)]
pub struct Loader(Arc<Script>);

#[derive(Debug)]
struct Script {
    end: Mutex<End>,
    takes: Duration,
    /// How often it yields before it answers.
    ponders: usize,
    /// As many loads may end as there are permits.
    gate: Semaphore,
    begun: watch::Sender<usize>,
    running: AtomicUsize,
    most_at_once: AtomicUsize,
    dropped: AtomicUsize,
}

/// How loads end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By an answer.
    Answer,
    /// By an error.
    Fail,
    /// By a panic after a while.
    Panic,
    /// By a panic in `call`.
    PanicInCall,
    /// By a panic in `poll_ready`, before they begin.
    PanicInPollReady,
}

/// The error of a load, by the number of that load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(
    /// The number of the load.
    pub usize,
);

impl Loader {
    /// Answers at once.
    pub fn new() -> Self {
        Self::scripted(Duration::ZERO, 0, Semaphore::MAX_PERMITS)
    }

    /// Answers after a while.
    pub fn taking(takes: Duration) -> Self {
        Self::scripted(takes, 0, Semaphore::MAX_PERMITS)
    }

    /// Answers after it was polled some times, and no time has gone by.
    pub fn pondering() -> Self {
        Self::scripted(Duration::ZERO, 3, Semaphore::MAX_PERMITS)
    }

    /// Ends no load before [`let_go`](Self::let_go).
    pub fn gated() -> Self {
        Self::scripted(Duration::ZERO, 0, 0)
    }

    fn scripted(takes: Duration, ponders: usize, permits: usize) -> Self {
        Self(Arc::new(Script {
            end: Mutex::new(End::Answer),
            takes,
            ponders,
            gate: Semaphore::new(permits),
            begun: watch::Sender::new(0),
            running: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        }))
    }

    /// From now on loads end like this.
    pub fn ends_by(&self, end: End) {
        *self.0.end.lock().unwrap() = end;
    }

    /// Lets as many loads end, of those that have begun or will.
    pub fn let_go(&self, loads: usize) {
        self.0.gate.add_permits(loads);
    }

    /// Waits until as many loads have begun.
    pub async fn has_begun(&self, loads: usize) {
        let mut begun = self.0.begun.subscribe();
        let enough = timeout(NEVER, begun.wait_for(|begun| *begun >= loads)).await;
        drop(enough.expect("a load begins"));
    }

    /// How many loads have begun.
    pub fn loads(&self) -> usize {
        *self.0.begun.borrow()
    }

    /// How many loads are running.
    pub fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    /// How many loads were running at the same time, at most.
    pub fn most_at_once(&self) -> usize {
        self.0.most_at_once.load(SeqCst)
    }

    /// How many loads were dropped before they ended.
    pub fn dropped(&self) -> usize {
        self.0.dropped.load(SeqCst)
    }

    fn end(&self) -> End {
        *self.0.end.lock().unwrap()
    }

    /// A load begins: its number, and what notices its end.
    fn begin(&self) -> (usize, Running) {
        let mut number = 0;
        self.0.begun.send_modify(|begun| {
            *begun += 1;
            number = *begun;
        });
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.most_at_once.fetch_max(running, SeqCst);
        (number, Running { script: Arc::clone(&self.0), ended: false })
    }
}

impl Service<u64> for Loader {
    type Response = usize;
    type Error = Refusal;
    type Future = BoxFuture<'static, Result<usize, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        assert_ne!(self.end(), End::PanicInPollReady, "scripted");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u64) -> Self::Future {
        let (number, running) = self.begin();
        assert_ne!(self.end(), End::PanicInCall, "scripted");
        let loader = self.clone();
        Box::pin(async move {
            let mut running = running;
            if !loader.0.takes.is_zero() {
                sleep(loader.0.takes).await;
            }
            for _ in 0..loader.0.ponders {
                yield_now().await;
            }
            loader.0.gate.acquire().await.expect("the gate is never closed").forget();
            running.ended = true;
            match loader.end() {
                End::Answer => Ok(number),
                End::Fail => Err(Refusal(number)),
                _ => panic!("scripted"),
            }
        })
    }
}

/// A load that runs.
struct Running {
    script: Arc<Script>,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.script.running.fetch_sub(1, SeqCst);
        if !self.ended {
            self.script.dropped.fetch_add(1, SeqCst);
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load {} was refused", self.0)
    }
}

impl std::error::Error for Refusal {}

/// A loader that panics when it is called or polled for readiness.
#[derive(Clone, Debug)]
pub struct Untouchable;

impl Service<u64> for Untouchable {
    type Response = usize;
    type Error = Refusal;
    type Future = BoxFuture<'static, Result<usize, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        panic!("asked whether it is ready");
    }

    fn call(&mut self, _: u64) -> Self::Future {
        panic!("called");
    }
}
