//! Batches: many requests as one pipeline per node, with an outcome for each.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tokio::time::Instant;

use super::journey::Journey;
use super::slot_table::SlotsByOwner;
use super::{Cluster, Undelivered};
use crate::node::{NodeError, RedisNode};
use crate::request::{Outgoing, RedisRequest, Replied};
use crate::request_error::RequestError;
use crate::slot::InSlot;
use bellwether::StoreError;

/// What a part of a batch has come to.
#[derive(Default)]
struct Progress {
    /// The requests with an outcome, by their places in the batch.
    settled: Vec<(usize, Result<Replied, Undelivered>)>,
    /// Those that go on, each with the node that did not serve it.
    unsettled: Vec<(usize, Arc<RedisNode>, NodeError)>,
}

type BatchPart<'a> = Pin<Box<dyn Future<Output = Progress> + Send + 'a>>;

impl Cluster {
    /// Runs requests as one pipeline per node. Reports each outcome with the place of the request
    /// as soon as it is known, so no request waits for a node that it does not need.
    ///
    /// # Cancel safety
    /// As for [`run`](Cluster::run).
    pub(in super::super) async fn run_all(
        self: &Arc<Self>,
        requests: &[RedisRequest<'_>],
        deadline: Instant,
        mut done: impl FnMut(usize, Result<Replied, StoreError>),
    ) {
        let admission = match self.health.admit() {
            Ok(admission) => admission,
            Err(down) => return (0..requests.len()).for_each(|at| done(at, Err(down.clone()))),
        };
        self.refresh_if_due(deadline - self.timeout);
        let mut parts: FuturesUnordered<BatchPart<'_>> = self.parts(requests, deadline).collect();
        let mut error = None;
        while let Some(Progress { settled, unsettled }) = parts.next().await {
            for (place, outcome) in settled {
                error = error.or_else(|| outcome.as_ref().err().cloned());
                done(place, outcome.map_err(|error| error.said));
            }
            for (place, node, failed) in unsettled {
                parts.push(self.rest(place, &requests[place], deadline, node, failed));
            }
        }
        self.note(admission, error.as_ref());
    }

    /// The pipelines, and the requests whose nodes are not known.
    fn parts<'a>(
        self: &'a Arc<Self>,
        requests: &'a [RedisRequest<'_>],
        deadline: Instant,
    ) -> impl Iterator<Item = BatchPart<'a>> {
        let SlotsByOwner { owned, others } = self.table.by_owner(requests.iter().map(InSlot::slot));
        let pipelines = owned.into_iter().map(move |(node, places)| -> BatchPart<'a> {
            Box::pin(pipeline(node, requests, places, deadline))
        });
        let singly = move |place: usize| -> BatchPart<'a> {
            let journey = Journey::new(deadline, self.timeout);
            Box::pin(async move { one(place, self.travel(&requests[place], journey).await) })
        };
        pipelines.chain(others.into_iter().map(singly))
    }

    /// The rest of the journey of a request that its node did not serve.
    fn rest<'a>(
        self: &'a Arc<Self>,
        place: usize,
        request: &'a RedisRequest<'_>,
        deadline: Instant,
        node: Arc<RedisNode>,
        failed: NodeError,
    ) -> BatchPart<'a> {
        Box::pin(async move {
            let mut journey = Journey::new(deadline, self.timeout);
            match self.go_on(&mut journey, request.slot(), &node, failed).await {
                Ok(()) => one(place, self.travel(request, journey).await),
                Err(error) => one(place, Err(error)),
            }
        })
    }
}

fn one(place: usize, outcome: Result<Replied, Undelivered>) -> Progress {
    Progress { settled: vec![(place, outcome)], unsettled: Vec::new() }
}

/// Sends requests to a node at once.
async fn pipeline(
    node: Arc<RedisNode>,
    requests: &[RedisRequest<'_>],
    places: Vec<usize>,
    deadline: Instant,
) -> Progress {
    let sent: Vec<_> = places.iter().map(|place| &requests[*place]).collect();
    let Some(first) = sent.first() else { return Progress::default() };
    let replied = node.send(first.route, Outgoing::Batch(&sent), deadline).await;
    let failed = match replied {
        Ok(Replied { value: Value::Array(values), is_repeated }) => {
            return read(&node, places, &sent, values, is_repeated);
        }
        Ok(_) => node.error_in_batch(first, RequestError::Malformed),
        Err(failed) => failed,
    };
    let unsettled = places.into_iter().map(|place| (place, Arc::clone(&node), failed.clone()));
    Progress { settled: Vec::new(), unsettled: unsettled.collect() }
}

/// The replies to a pipeline.
fn read(
    node: &Arc<RedisNode>,
    places: Vec<usize>,
    sent: &[&RedisRequest<'_>],
    values: Vec<Value>,
    is_repeated: bool,
) -> Progress {
    let settled = Vec::with_capacity(places.len());
    let mut progress = Progress { settled, unsettled: Vec::new() };
    for ((place, request), value) in places.into_iter().zip(sent).zip(values) {
        match value.extract_error() {
            Ok(value) => progress.settled.push((place, Ok(Replied { value, is_repeated }))),
            Err(error) => {
                let failed = node.error_in_batch(request, RequestError::Reported(error));
                progress.unsettled.push((place, Arc::clone(node), failed));
            }
        }
    }
    progress
}
