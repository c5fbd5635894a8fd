//! Expiring the entry of a target: a `Vary` index gets a note of the expiry, and stays fresh. Callers
//! that want the same done for a key share a run of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::{AdapterCache, jitter, locked};
use bellwether::service::Handle;
use bellwether::store::{
    Accept, Acquire, Claim, Digest, Draft, End, Entry, Lease, Settled, Store, Tags, Value,
    Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, StoreError};
use tokio::runtime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;

use super::codec::HttpCodec;

/// The expiries of a layer. Concurrent ones of a key share a run.
pub(super) type ExpiryRuns = Arc<SharedRuns<Result<bool, StoreError>>>;

/// A handle to the entries by their keys. It expires the variants of a response with its index.
pub(super) fn entries(client: &AdapterCache<HttpCodec>, runs: &ExpiryRuns) -> Handle {
    let (client, runs) = (client.clone(), runs.clone());
    client.handle().expiring_by(move |key| {
        let (client, runs) = (client.clone(), runs.clone());
        Box::pin(async move { expire(client, &runs, key).await })
    })
}

/// Notes an expiry in the index of a key, or makes its entry stale. Returns whether there was an
/// entry.
///
/// If the note cannot be stored, or another caller keeps the lease, the entry is expired: a store keeps
/// and repeats expiries, not notes. For the same reason this runs in a task, which goes on if the
/// caller leaves, unless there is no runtime.
async fn expire(
    client: AdapterCache<HttpCodec>,
    runs: &ExpiryRuns,
    key: Key,
) -> Result<bool, StoreError> {
    let expired = runs.run(&key, expire_now(client.clone(), key.clone())).await;
    match expired {
        Some(expired) => expired,
        None => client.store().withdraw(WithdrawalTarget::Key(key), Withdrawal::EXPIRE).await,
    }
}

async fn expire_now(client: AdapterCache<HttpCodec>, key: Key) -> Result<bool, StoreError> {
    let store = client.store();
    match noted(store, &key).await {
        Ok(Noted::Stored) => Ok(true),
        Ok(Noted::NotThere) | Err(_) => {
            store.withdraw(WithdrawalTarget::Key(key), Withdrawal::EXPIRE).await
        }
        // What has refused the note may have removed the entry.
        Ok(Noted::Refused) => {
            store.withdraw(WithdrawalTarget::Key(key), Withdrawal::EXPIRE).await.map(|_| true)
        }
    }
}

/// What became of a note.
enum Noted {
    Stored,
    /// There was no index.
    NotThere,
    /// There was one, and another caller has the lease, or has removed the index meanwhile.
    Refused,
}

async fn noted(store: &dyn Store, key: &Key) -> Result<Noted, StoreError> {
    let found = store.lookup(key.clone(), Tags::none()).await?;
    if found.as_ref().and_then(HttpCodec::expired_index).is_none() {
        return Ok(Noted::NotThere);
    }
    let begun = Instant::now();
    for nth in 1.. {
        let mut watch = store.watch(key);
        let acquired = store.acquire(Claim::new(key.clone()), TERM, Accept::Nothing).await?;
        if let Acquire::Lead { lease, stale, .. } = acquired {
            if let Some(error) = lease.outage {
                store.settle(End::Abandon(lease.claim)).await?;
                return Err(error);
            }
            return commit(store, lease, stale).await;
        }
        // A process that was held up for so long has tried only once.
        let is_over = nth >= LEAST_TRIES && begun.elapsed() >= LONGEST_WAIT;
        if is_over || runtime::Handle::try_current().is_err() {
            break;
        }
        // The holder is nearly always an expiry by another process, which takes a moment. Its end wakes
        // all processes, and they should not ask all at once.
        _ = timeout(PAUSE, watch.changed()).await;
        sleep(SPREAD.mul_f64(jitter())).await;
    }
    Ok(Noted::Refused)
}

/// Notes the expiry in the index under a lease. It may be another index by now.
async fn commit(
    store: &dyn Store,
    lease: Lease,
    entry: Option<Entry>,
) -> Result<Noted, StoreError> {
    let noted =
        entry.and_then(|entry| HttpCodec::expired_index(&entry).map(|bytes| (entry, bytes)));
    let Some((entry, bytes)) = noted else {
        store.settle(End::Abandon(lease.claim)).await?;
        return Ok(Noted::Refused);
    };
    let draft = Draft::new(Value::new(bytes), entry.codec(), entry.lifetimes());
    let draft = draft.tagged(entry.tags()).as_change(Withdrawal::EXPIRE);
    Ok(match store.settle(End::Commit(lease, draft)).await? {
        Settled::Done => Noted::Stored,
        _ => Noted::Refused,
    })
}

/// The term of the lease under which an expiry is noted.
const TERM: Duration = Duration::from_secs(2);

/// For how long the lease of an index is requested, and how often at least.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const LEAST_TRIES: u32 = 8;

/// The longest wait for a holder before the next attempt, and the time over which those of the processes
/// that its end wakes are spread.
const PAUSE: Duration = Duration::from_millis(25);
const SPREAD: Duration = Duration::from_millis(5);

/// Runs an operation for the callers of a key: one run at a time, and one that is about to begin, which
/// callers share. So any number of concurrent callers costs two runs, and each gets the result of one
/// that began after its call.
///
/// Clones share their runs.
pub(super) struct SharedRuns<T>(Mutex<RunTable<T>>);

/// The run of each key that was started last. Locked for a few operations, never across an `.await`.
type RunTable<T> = HashMap<Digest, KeyRun<T>>;

struct KeyRun<T> {
    has_begun: bool,
    result: RunResult<T>,
}

/// Where a run leaves its result.
type RunResult<T> = watch::Receiver<Option<T>>;

impl<T: Clone + Send + Sync + 'static> SharedRuns<T> {
    /// Runs an operation, or shares a run of this key that has not begun yet. All operations of a key
    /// must do the same.
    ///
    /// A run is a task, so it goes on if its callers leave. Without a runtime the operation runs here.
    /// `None` if the operation has panicked, if its runtime ends, or after ten seconds: the runtime of
    /// the caller that has started it may not be driven any more.
    pub(super) async fn run<F>(self: &Arc<Self>, key: &Key, operation: F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let Ok(runtime) = runtime::Handle::try_current() else { return Some(operation.await) };
        let mut result = self.join(key.digest(), &runtime, operation);
        let result = timeout(LONGEST_RUN * 2, result.wait_for(Option::is_some)).await.ok()?.ok()?;
        result.clone()
    }

    fn join<F>(
        self: &Arc<Self>,
        digest: Digest,
        runtime: &runtime::Handle,
        operation: F,
    ) -> RunResult<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (end, result) = watch::channel(None);
        let mut table = locked(&self.0);
        if let Some(run) = table.get(&digest).filter(|run| !run.has_begun) {
            return run.result.clone();
        }
        let run = KeyRun { has_begun: false, result: result.clone() };
        let previous = table.insert(digest, run);
        drop(table);
        let place = RunPlace { runs: Arc::clone(self), digest, result: result.clone() };
        let run = async move {
            if let Some(mut previous) = previous {
                // Whatever became of it.
                _ = timeout(LONGEST_RUN, previous.result.wait_for(Option::is_some)).await;
            }
            place.begin();
            let done = operation.await;
            drop(place);
            _ = end.send(Some(done));
        };
        runtime.spawn(run.in_current_span());
        result
    }
}

/// How long one run may hold up the next one: many times what it takes.
const LONGEST_RUN: Duration = Duration::from_secs(5);

/// The place of a run in the table, until it ends for any reason.
struct RunPlace<T> {
    runs: Arc<SharedRuns<T>>,
    digest: Digest,
    result: RunResult<T>,
}

impl<T> RunPlace<T> {
    /// Callers that come from here on need another run.
    fn begin(&self) {
        locked(&self.runs.0).get_mut(&self.digest).into_iter().for_each(|run| run.has_begun = true);
    }
}

impl<T> Drop for RunPlace<T> {
    fn drop(&mut self) {
        let mut table = locked(&self.runs.0);
        if table.get(&self.digest).is_some_and(|run| run.result.same_channel(&self.result)) {
            table.remove(&self.digest);
        }
    }
}

impl<T> Default for SharedRuns<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::join;
    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;

    fn key() -> Key {
        Key::of("item")
    }

    #[derive(Clone, Default)]
    struct Counter(Arc<AtomicUsize>);

    impl Counter {
        /// An operation that gives the number of its run.
        async fn next(self) -> usize {
            yield_now().await;
            self.0.fetch_add(1, Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn concurrent_callers_share_a_run_that_has_not_begun() {
        let (runs, counter) = <(Arc<SharedRuns<usize>>, Counter)>::default();
        let key = key();
        let callers = || (0..64).map(|_| runs.run(&key, counter.clone().next()));
        assert_eq!(join_all(callers()).await, [Some(0); 64]);
        assert_eq!(join_all(callers()).await, [Some(1); 64]);
        assert_eq!(locked(&runs.0).len(), 0);
    }

    #[tokio::test]
    async fn callers_get_no_result_of_a_run_that_began_before_their_call() {
        let (runs, counter) = <(Arc<SharedRuns<usize>>, Counter)>::default();
        let key = key();
        let gate = Arc::new((Notify::new(), Notify::new()));
        let held = {
            let (gate, counter) = (Arc::clone(&gate), counter.clone());
            async move {
                gate.0.notify_one();
                gate.1.notified().await;
                counter.next().await
            }
        };
        let late = async {
            gate.0.notified().await;
            let late = join_all((0..9).map(|_| runs.run(&key, counter.clone().next())));
            let open = async { gate.1.notify_one() };
            join!(late, open).0
        };
        assert_eq!(join!(runs.run(&key, held), late), (Some(0), vec![Some(1); 9]));
    }

    #[tokio::test]
    async fn a_run_goes_on_if_its_caller_leaves() {
        let (runs, counter) = <(Arc<SharedRuns<usize>>, Counter)>::default();
        assert_eq!(runs.run(&key(), counter.clone().next()).now_or_never(), None);
        // It begins after that one.
        yield_now().await;
        assert_eq!(runs.run(&key(), counter.next()).await, Some(1));
    }

    #[tokio::test]
    async fn a_run_that_panics_has_no_result_and_leaves_its_place() {
        let runs = Arc::<SharedRuns<usize>>::default();
        assert_eq!(runs.run(&key(), async { panic!("scripted") }).await, None);
        assert_eq!(runs.run(&key(), Counter::default().next()).await, Some(0));
    }

    #[test]
    fn callers_do_not_wait_for_ever_for_a_runtime_that_is_not_driven() {
        let runtime = || {
            let mut builder = runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().expect("a runtime")
        };
        let (runs, counter) = <(Arc<SharedRuns<usize>>, Counter)>::default();
        let (kept, other) = (runtime(), runtime());
        kept.block_on(async {
            assert_eq!(runs.run(&key(), pending()).now_or_never(), None);
            yield_now().await;
        });
        assert_eq!(other.block_on(runs.run(&key(), counter.next())), Some(0));
    }

    #[test]
    fn without_a_runtime_the_operation_runs_in_place() {
        let runs = Arc::<SharedRuns<_>>::default();
        assert_eq!(runs.run(&key(), async { 7 }).now_or_never(), Some(Some(7)));
    }
}
