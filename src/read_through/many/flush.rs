//! Flushes: the calls of the loader for a batch.

use std::iter;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tracing::Instrument;

use super::answers::{BatchLoader, BatchResult};
use super::batch::{Batch, Collected, ItemOutcome};
use super::error::ItemError;
use crate::error::BoxError;
use crate::read_through::error_rules::ErrorRules;

/// The task that takes the collected requests and calls the loader for them. If it is dropped
/// before that, their callers get the error that the call was lost.
pub(super) struct Flush<B: BatchLoader<Req>, Req: Send + 'static> {
    batch: Arc<Batch<B, Req>>,
    has_flushed: bool,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Flush<B, Req> {
    /// Starts a flush if one is due. Without a runtime, the call is lost.
    pub(super) fn if_due(batch: &Arc<Batch<B, Req>>, is_due: bool) {
        if !is_due {
            return;
        }
        let flush = Self { batch: Arc::clone(batch), has_flushed: false };
        if let Ok(runtime) = Handle::try_current() {
            let span = flush.batch.span();
            runtime.spawn(flush.run().instrument(span));
        }
    }

    /// Yields once, so that requests that are collected at the same moment go into the same call.
    async fn run(mut self) {
        yield_now().await;
        let loader = self.batch.loader();
        self.has_flushed = true;
        let mut taken = self.batch.take();
        // No call for callers that have left.
        taken.retain(|collected| !collected.outcome.is_closed());
        while !taken.is_empty() {
            let rest = taken.split_off(taken.len().min(self.batch.most()));
            let call = call(loader.clone(), taken, self.batch.rules().clone());
            tokio::spawn(call.in_current_span());
            taken = rest;
        }
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Drop for Flush<B, Req> {
    fn drop(&mut self) {
        if !self.has_flushed {
            self.batch.drop_collected();
        }
    }
}

/// One call of the loader: until it ends, or until its last caller has left.
async fn call<B: BatchLoader<Req>, Req>(
    loader: B,
    taken: Vec<Collected<B, Req>>,
    rules: ErrorRules,
) {
    let (requests, mut callers): (Vec<_>, Vec<_>) =
        taken.into_iter().map(|collected| (collected.request, collected.outcome)).unzip();
    let asked = requests.len();
    let loading = async move { loader.load(requests).await };
    let outcomes: Vec<ItemOutcome<B, Req>> = tokio::select! {
        loaded = AssertUnwindSafe(loading).catch_unwind() => match loaded {
            Ok(loaded) => each(loaded, asked, &rules),
            Err(_) => for_all(&ItemError::Panicked, asked),
        },
        () = all_gone(&mut callers) => return,
    };
    for (caller, outcome) in callers.into_iter().zip(outcomes) {
        // The caller may have left.
        _ = caller.send(outcome);
    }
}

/// Returns when the last caller has left.
async fn all_gone<T>(callers: &mut [oneshot::Sender<T>]) {
    for caller in callers {
        caller.closed().await;
    }
}

/// An outcome for each of the `asked` requests.
fn each<T, E>(
    loaded: BatchResult<T, E>,
    asked: usize,
    rules: &ErrorRules,
) -> Vec<Result<T, ItemError>>
where
    E: Into<BoxError> + Send + Sync + 'static,
{
    match loaded {
        Ok(outcomes) if outcomes.len() == asked => {
            let failed = |error| ItemError::load(error, rules);
            outcomes.into_iter().map(|outcome| outcome.map_err(failed)).collect()
        }
        Ok(outcomes) => for_all(&ItemError::WrongCount { asked, answered: outcomes.len() }, asked),
        Err(error) => for_all(&ItemError::load(error, rules), asked),
    }
}

fn for_all<T>(error: &ItemError, asked: usize) -> Vec<Result<T, ItemError>> {
    iter::repeat_with(|| Err(error.clone())).take(asked).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use tower::{Service, service_fn};

    use super::*;
    use crate::flight::Phase;
    use crate::read_through::many::item::BatchItem;

    /// On this kind of runtime, the task that was spawned last runs first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_flush_yields_so_that_a_request_of_the_same_moment_joins_its_call() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        let loader = service_fn(move |requests: Vec<u64>| {
            noted.lock().unwrap().push(requests.clone());
            async move { Ok::<Vec<Result<_, Infallible>>, _>(requests.into_iter().map(Ok).collect()) }
        });
        let batch = Batch::new(loader, 10, 2, ErrorRules::default());
        let items = [0, 1].map(|number| BatchItem::new(Arc::clone(&batch), number));
        (0..2).for_each(|number| assert!(!batch.on_phase(number, Phase::Waiting)));
        let both = tokio::spawn(async move {
            items.map(|mut item| tokio::spawn(async move { item.call(7).await.ok() }))
        });
        for answered in both.await.unwrap() {
            assert_eq!(answered.await.unwrap(), Some(7));
        }
        assert_eq!(*calls.lock().unwrap(), [[7, 7]]);
    }
}
