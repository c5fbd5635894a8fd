//! `SharedRuns`: callers that want the same done for a key share a run of it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::{Digest, Key};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::Instrument;

/// Runs an operation for the callers of a key: one run at a time, and one that is about to begin, which
/// callers share. So any number of concurrent callers costs two runs, and each gets the result of one
/// that began after its call.
///
/// Clones share their runs.
pub(super) struct SharedRuns<T>(Arc<Mutex<RunTable<T>>>);

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
    pub(super) async fn run<F>(&self, key: &Key, operation: F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let Ok(runtime) = Handle::try_current() else { return Some(operation.await) };
        let mut result = self.join(key.digest(), &runtime, operation);
        let result = timeout(LONGEST_RUN * 2, result.wait_for(Option::is_some)).await.ok()?.ok()?;
        result.clone()
    }

    fn join<F>(&self, digest: Digest, runtime: &Handle, operation: F) -> RunResult<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (end, result) = watch::channel(None);
        let mut table = self.table();
        if let Some(run) = table.get(&digest).filter(|run| !run.has_begun) {
            return run.result.clone();
        }
        let run = KeyRun { has_begun: false, result: result.clone() };
        let previous = table.insert(digest, run);
        drop(table);
        let place = RunPlace { runs: self.clone(), digest, result: result.clone() };
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

impl<T> SharedRuns<T> {
    fn table(&self) -> MutexGuard<'_, RunTable<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a run in the table, until it ends for any reason.
struct RunPlace<T> {
    runs: SharedRuns<T>,
    digest: Digest,
    result: RunResult<T>,
}

impl<T> RunPlace<T> {
    /// Callers that come from here on need another run.
    fn begin(&self) {
        self.runs.table().get_mut(&self.digest).into_iter().for_each(|run| run.has_begun = true);
    }
}

impl<T> Drop for RunPlace<T> {
    fn drop(&mut self) {
        let mut table = self.runs.table();
        if table.get(&self.digest).is_some_and(|run| run.result.same_channel(&self.result)) {
            table.remove(&self.digest);
        }
    }
}

impl<T> Clone for SharedRuns<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for SharedRuns<T> {
    fn default() -> Self {
        Self(Arc::default())
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
        let (runs, counter) = <(SharedRuns<usize>, Counter)>::default();
        let key = key();
        let callers = || (0..64).map(|_| runs.run(&key, counter.clone().next()));
        assert_eq!(join_all(callers()).await, [Some(0); 64]);
        assert_eq!(join_all(callers()).await, [Some(1); 64]);
        assert_eq!(runs.table().len(), 0);
    }

    #[tokio::test]
    async fn callers_get_no_result_of_a_run_that_began_before_their_call() {
        let (runs, counter) = <(SharedRuns<usize>, Counter)>::default();
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
        let (runs, counter) = <(SharedRuns<usize>, Counter)>::default();
        assert_eq!(runs.run(&key(), counter.clone().next()).now_or_never(), None);
        // It begins after that one.
        yield_now().await;
        assert_eq!(runs.run(&key(), counter.next()).await, Some(1));
    }

    #[tokio::test]
    async fn a_run_that_panics_has_no_result_and_leaves_its_place() {
        let runs = SharedRuns::<usize>::default();
        assert_eq!(runs.run(&key(), async { panic!("scripted") }).await, None);
        assert_eq!(runs.run(&key(), Counter::default().next()).await, Some(0));
    }

    #[test]
    fn callers_do_not_wait_for_ever_for_a_runtime_that_is_not_driven() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().expect("a runtime")
        };
        let (runs, counter) = <(SharedRuns<usize>, Counter)>::default();
        let (kept, other) = (runtime(), runtime());
        kept.block_on(async {
            assert_eq!(runs.run(&key(), pending()).now_or_never(), None);
            yield_now().await;
        });
        assert_eq!(other.block_on(runs.run(&key(), counter.next())), Some(0));
    }

    #[test]
    fn without_a_runtime_the_operation_runs_in_place() {
        let runs = SharedRuns::default();
        assert_eq!(runs.run(&key(), async { 7 }).now_or_never(), Some(Some(7)));
    }
}
