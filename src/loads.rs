//! `Loads`: a bound on loads that are under way at once, and the queue before it.

#[path = "loads/gradient.rs"]
mod gradient;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::{fmt, mem};

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::gradient::Gradient;
use crate::locked::locked;

/// A bound on loads that are under way at once in this process: for one cache, or for several that load
/// from one source. Clones are one bound.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::{Cache, Loads, MemoryStore};
///
/// # fn build() -> Result<(), bellwether::ConfigError> {
/// let minute = Duration::from_secs(60);
/// let database = Loads::at_most(50);
/// let items: Cache<u64, String> =
///     Cache::builder("item", MemoryStore::new(10_000)).ttl(minute).max_loads(&database).build()?;
/// let prices: Cache<u64, u64> =
///     Cache::builder("price", MemoryStore::new(10_000)).ttl(minute).max_loads(&database).build()?;
/// # let _ = (items, prices);
/// # Ok(())
/// # }
/// # build().unwrap();
/// ```
///
/// See [`max_loads`](crate::service::ReadThroughLayerBuilder::max_loads).
#[derive(Clone)]
pub struct Loads(LoadBound);

/// Held for a few operations, never across an `.await` or while a waker is called. Taken last: no other
/// lock is taken under it.
type LoadBound = Arc<Mutex<LoadQueue>>;

#[derive(Default)]
struct LoadQueue {
    /// How many permits may be out.
    most: usize,
    /// How many of them, if that follows the times of loads.
    gradient: Option<Gradient>,
    /// How many permits are out. While there are fewer than there may be, no ticket waits.
    taken: usize,
    /// Numbers the tickets.
    tickets: u64,
    /// In this order they get their permits.
    waiting: BTreeMap<(LoadRank, u64), oneshot::Sender<LoadPermit>>,
}

/// Which loads go first. Those of one rank go in the order in which they began to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadRank {
    /// Has waited for the load of another process: probably it needs the permit for one request only.
    Asked,
    /// A caller waits for it.
    Awaited,
    /// No caller waits for it: a refresh.
    Background,
}

impl Loads {
    /// A bound of this many loads.
    pub fn at_most(most: usize) -> Self {
        Self(Arc::new(Mutex::new(LoadQueue { most, ..LoadQueue::default() })))
    }

    /// A bound that follows the times of loads, up to this many: it fills the source, and keeps a short queue
    /// there. For a source whose capacity is not known, or changes.
    ///
    /// It begins with 4 loads. After each round of loads it becomes larger, unless they took longer than with
    /// half as many; then it becomes smaller: see the gradient of Netflix's [concurrency-limits] and
    /// [Envoy]. Answers and timeouts count, errors do not. Each process has a bound of its own.
    ///
    /// [concurrency-limits]: https://github.com/Netflix/concurrency-limits
    /// [Envoy]: https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter
    pub fn adaptive(most: usize) -> Self {
        let gradient = Some(Gradient::new(most));
        Self(Arc::new(Mutex::new(LoadQueue { most, gradient, ..LoadQueue::default() })))
    }

    pub(crate) fn most(&self) -> usize {
        locked(&self.0).most
    }

    /// A permit, if one is free.
    pub(crate) fn try_permit(&self) -> Option<LoadPermit> {
        locked(&self.0).take().then(|| LoadPermit(Arc::clone(&self.0)))
    }

    /// A place in the queue.
    pub(crate) fn queue(&self, rank: LoadRank) -> LoadTicket {
        let (handed, permit) = oneshot::channel();
        let mut queue = locked(&self.0);
        queue.tickets += 1;
        let number = queue.tickets;
        queue.waiting.insert((rank, number), handed);
        drop(queue);
        // A permit may have come back since the last attempt.
        hand_out(&self.0, 0);
        LoadTicket { bound: Arc::clone(&self.0), rank, number, permit }
    }
}

impl From<usize> for Loads {
    fn from(most: usize) -> Self {
        Self::at_most(most)
    }
}

impl From<&Self> for Loads {
    fn from(shared: &Self) -> Self {
        shared.clone()
    }
}

impl fmt::Debug for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = locked(&self.0);
        let (bound, taken, queued) = (queue.bound(), queue.taken, queue.waiting.len());
        drop(queue);
        let mut shown = f.debug_struct("Loads");
        shown.field("most", &bound).field("taken", &taken).field("queued", &queued).finish()
    }
}

impl LoadQueue {
    /// How many permits may be out now.
    fn bound(&self) -> usize {
        self.gradient.as_ref().map_or(self.most, Gradient::bound)
    }

    /// Takes a permit, if one is free.
    fn take(&mut self) -> bool {
        let bound = self.bound();
        let is_free = self.taken < bound;
        self.taken += usize::from(is_free);
        if let Some(gradient) = self.gradient.as_mut().filter(|_| self.taken >= bound) {
            gradient.note_full();
        }
        is_free
    }
}

/// Takes so many permits back, and hands those that are free to the first tickets.
fn hand_out(bound: &LoadBound, back: usize) {
    let mut queue = locked(bound);
    queue.taken -= back;
    let mut first = Vec::new();
    while !queue.waiting.is_empty()
        && queue.take()
        && let Some((_, ticket)) = queue.waiting.pop_first()
    {
        first.push(ticket);
    }
    drop(queue);
    // After the lock: a woken task may run at once, on this very thread; and a ticket that was dropped
    // meanwhile does not take its permit, which so comes back.
    for ticket in first {
        drop(ticket.send(LoadPermit(Arc::clone(bound))));
    }
}

/// The right to one load. Dropping it gives it back.
pub(crate) struct LoadPermit(LoadBound);

impl LoadPermit {
    /// The load that began then has ended, and says how busy the source is.
    pub(crate) fn note(&self, began: Instant) {
        if let Some(gradient) = &mut locked(&self.0).gradient {
            gradient.note(began, Instant::now());
        }
    }
}

impl Drop for LoadPermit {
    fn drop(&mut self) {
        hand_out(&self.0, 1);
    }
}

/// A place in the queue for a permit. Dropping it gives the place up: a permit that it was handed goes
/// to the next one.
pub(crate) struct LoadTicket {
    bound: LoadBound,
    rank: LoadRank,
    number: u64,
    permit: oneshot::Receiver<LoadPermit>,
}

impl LoadTicket {
    /// Moves it to another rank, among the tickets there that began to wait before it and after it.
    pub(crate) fn move_to(&mut self, rank: LoadRank) {
        let from = mem::replace(&mut self.rank, rank);
        if from != rank {
            let queue = &mut *locked(&self.bound);
            if let Some(handed) = queue.waiting.remove(&(from, self.number)) {
                queue.waiting.insert((rank, self.number), handed);
            }
        }
    }
}

impl Future for LoadTicket {
    type Output = LoadPermit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LoadPermit> {
        let permit = Pin::new(&mut self.permit).poll(cx);
        permit.map(|permit| permit.expect("a ticket waits until it is handed one"))
    }
}

impl Drop for LoadTicket {
    fn drop(&mut self) {
        let left = locked(&self.bound).waiting.remove(&(self.rank, self.number));
        // After the lock: it may run any code.
        drop(left);
    }
}
