//! Departures: the calls of a batch.

use std::iter;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::answers::{BatchLoader, Loaded};
use super::batch::{Batch, Collected, ItemOutcome};
use super::error::BatchError;

/// The task that takes those who are collected, and calls the loader for them. If it is dropped
/// before, they are told that their call was lost.
pub(super) struct Flush<B: BatchLoader<Req>, Req: Send + 'static> {
    batch: Arc<Batch<B, Req>>,
    has_left: bool,
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Flush<B, Req> {
    /// Lets a call depart, if it is time for that. Without a runtime it is lost.
    pub(super) fn if_due(batch: &Arc<Batch<B, Req>>, is_due: bool) {
        if !is_due {
            return;
        }
        let flush = Self { batch: Arc::clone(batch), has_left: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flush.run());
        }
    }

    /// Lets the scheduler pass once, for those who are about to be collected at the same moment.
    async fn run(mut self) {
        yield_now().await;
        let loader = self.batch.loader();
        self.has_left = true;
        let mut together = self.batch.take();
        // Nobody loads for those who have gone.
        together.retain(|collected| !collected.outcome.is_closed());
        while !together.is_empty() {
            let rest = together.split_off(together.len().min(self.batch.most()));
            tokio::spawn(call(loader.clone(), together));
            together = rest;
        }
    }
}

impl<B: BatchLoader<Req>, Req: Send + 'static> Drop for Flush<B, Req> {
    fn drop(&mut self) {
        if !self.has_left {
            self.batch.lose();
        }
    }
}

/// One call of the loader: until it ends, or until nobody waits for it any more.
async fn call<B: BatchLoader<Req>, Req>(loader: B, together: Vec<Collected<B, Req>>) {
    let (requests, mut callers): (Vec<_>, Vec<_>) =
        together.into_iter().map(|collected| (collected.request, collected.outcome)).unzip();
    let asked = requests.len();
    let loading = async move { loader.load(requests).await };
    let outcomes: Vec<ItemOutcome<B, Req>> = tokio::select! {
        loaded = AssertUnwindSafe(loading).catch_unwind() => match loaded {
            Ok(loaded) => each(loaded, asked),
            Err(_) => for_all(&BatchError::Panicked, asked),
        },
        () = all_gone(&mut callers) => return,
    };
    for (caller, outcome) in callers.into_iter().zip(outcomes) {
        // It may have gone.
        _ = caller.send(outcome);
    }
}

/// Returns when nobody waits for an outcome any more.
async fn all_gone<T>(callers: &mut [oneshot::Sender<T>]) {
    for caller in callers {
        caller.closed().await;
    }
}

/// An outcome for each of those who were asked for.
fn each<T, E>(loaded: Loaded<T, E>, asked: usize) -> Vec<Result<T, BatchError<E>>> {
    match loaded {
        Ok(outcomes) if outcomes.len() == asked => {
            let failed = |error| BatchError::Load(Arc::new(error));
            outcomes.into_iter().map(|outcome| outcome.map_err(failed)).collect()
        }
        Ok(outcomes) => for_all(&BatchError::WrongCount { asked, answered: outcomes.len() }, asked),
        Err(error) => for_all(&BatchError::Load(Arc::new(error)), asked),
    }
}

fn for_all<T, E>(error: &BatchError<E>, asked: usize) -> Vec<Result<T, BatchError<E>>> {
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

    /// On such a runtime the task that was spawned last runs first.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_is_about_to_be_collected_goes_along_though_nobody_knew() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        let loader = service_fn(move |requests: Vec<u64>| {
            noted.lock().unwrap().push(requests.clone());
            async move { Ok::<Vec<Result<_, Infallible>>, _>(requests.into_iter().map(Ok).collect()) }
        });
        let batch = Batch::new(loader, 10, 2);
        let items = [0, 1].map(|number| BatchItem::new(Arc::clone(&batch), number));
        (0..2).for_each(|number| assert!(!batch.hear(number, Phase::Waiting)));
        let both = tokio::spawn(async move {
            items.map(|mut item| tokio::spawn(async move { item.call(7).await.ok() }))
        });
        for answered in both.await.unwrap() {
            assert_eq!(answered.await.unwrap(), Some(7));
        }
        assert_eq!(*calls.lock().unwrap(), [[7, 7]]);
    }
}
