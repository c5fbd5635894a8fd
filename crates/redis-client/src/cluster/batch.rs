//! Batches: many requests as one pipeline per node, with an outcome for each.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{join, join_all};
use tokio::time::Instant;

use super::slot_table::SlotsByOwner;
use super::{Cluster, Undelivered};
use crate::node::RedisNode;
use crate::request::{RedisRequest, Replied};
use crate::slot::InSlot;
use bellwether::StoreError;

impl Cluster {
    /// Runs requests as one pipeline per node. Reports each outcome with the place of the request
    /// as soon as it is known, so no request waits for a node that it does not need.
    ///
    /// # Cancel safety
    /// As for [`run`](Cluster::run).
    pub(crate) async fn run_all(
        self: &Arc<Self>,
        requests: &[RedisRequest<'_>],
        deadline: Instant,
        mut done: impl FnMut(usize, Result<Replied, StoreError>),
    ) {
        let admission = match self.breaker.admit() {
            Ok(admission) => admission,
            Err(down) => return (0..requests.len()).for_each(|at| done(at, Err(down.clone()))),
        };
        self.refresh_if_due(deadline - self.timeout);
        // Never held across an `.await`.
        let reported = Mutex::new((done, None));
        let report = |place, outcome: Result<Replied, Undelivered>| {
            let (done, error) = &mut *reported.lock().unwrap_or_else(PoisonError::into_inner);
            *error = error.take().or_else(|| outcome.as_ref().err().cloned());
            done(place, outcome.map_err(|error| error.said));
        };
        let SlotsByOwner { owned, others } = self.table.by_owner(requests.iter().map(InSlot::slot));
        let pipelines = owned
            .into_iter()
            .map(|(node, places)| self.pipeline(node, requests, places, deadline, &report));
        let singly = others.into_iter().map(async |place| {
            report(place, self.deliver(&requests[place], deadline, None).await);
        });
        join(join_all(pipelines), join_all(singly)).await;
        let (_, error) = reported.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.note(admission, error.as_ref());
    }

    /// Sends requests to their node at once. Those that it does not serve go on singly.
    async fn pipeline(
        self: &Arc<Self>,
        node: Arc<RedisNode>,
        requests: &[RedisRequest<'_>],
        places: Vec<usize>,
        deadline: Instant,
        report: &impl Fn(usize, Result<Replied, Undelivered>),
    ) {
        let sent: Vec<_> = places.iter().map(|place| &requests[*place]).collect();
        let mut unserved = Vec::new();
        for (place, outcome) in places.into_iter().zip(node.send_each(&sent, deadline).await) {
            match outcome {
                Ok(replied) => report(place, Ok(replied)),
                Err(failed) => unserved.push((place, failed)),
            }
        }
        let rest = unserved.into_iter().map(async |(place, failed)| {
            let failed = Some((Arc::clone(&node), failed));
            report(place, self.deliver(&requests[place], deadline, failed).await);
        });
        join_all(rest).await;
    }
}
