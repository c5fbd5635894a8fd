//! The task of an uncached load, for callers that waited in vain for another load.

use std::sync::Arc;

use tokio::time::timeout;
use tower::Service;

use super::core::Core;
use super::load::{FailedLoad, Keeping, Lent, LoaderAnswer, load};
use super::outcome::{Origin, Outcome};
use crate::codec::Codec;
use crate::error::CacheError;
use crate::flight::Leader;
use crate::status::BypassReason;

/// Loads without a lease, and completes the callers that had given up before the load began. It
/// is not kept: whether anything came between cannot be known without a lease.
///
/// # Cancel safety
/// If it is dropped, the waiters are told to look again.
pub(crate) async fn load_uncached<S, Req, C>(
    core: Arc<Core<C>>,
    leader: Leader<Outcome>,
    job: Lent<S, Req>,
) where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    let patience = core.policy.patience();
    let Ok(Ok(_permit)) = timeout(patience, core.loads.permits.acquire()).await else {
        let error = CacheError::too_many_loads(leader.key(), core.policy.bounds.loads_around);
        return leader.complete_all(&Outcome::Failed(error));
    };
    let Some(job) = job.take() else { return };
    let begun = leader.generation();
    let key = leader.key().digest();
    let before = core.loads.apart.times(&key);
    match load(job, &core, &leader, core.policy.when_abandoned).await {
        LoaderAnswer::Loaded(kept, keeping) => {
            core.loads.failures.forget(&key);
            core.loads.apart.forget(&key);
            let outcome = Outcome::Value(kept, Origin::Around(BypassReason::WaitRanOut));
            match keeping {
                Keeping::PrivateKey => {
                    leader.complete_opener(&outcome);
                    leader.complete_all(&Outcome::Private);
                }
                Keeping::PrivateOnce => {
                    leader.complete_opener(&outcome);
                    leader.close_with(Outcome::Own);
                }
                _ => leader.complete_before(begun, &outcome),
            }
        }
        LoaderAnswer::Failed(failed) => fail(&core, &leader, failed, before),
        LoaderAnswer::Abandoned => {}
    }
}

/// The failure of one load may be the fault of its request: the others load again with another.
fn fail<C>(core: &Core<C>, leader: &Leader<Outcome>, mut failed: FailedLoad, before: u32) {
    if let Outcome::Value(_, origin) = &mut failed.outcome {
        *origin = Origin::Around(BypassReason::WaitRanOut);
    }
    let failure = failed.remembered(before, &core.policy).without_window();
    let is_confirmed = failed.is_confirmed(before);
    core.loads.apart.note(leader.key().digest(), failed.outcome.clone(), 0, &failure);
    match is_confirmed {
        true => leader.complete_all(&failed.outcome),
        false => leader.complete_opener(&failed.outcome),
    }
}
