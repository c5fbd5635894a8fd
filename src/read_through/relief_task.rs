//! The task of a relief: a load of their own for those who waited in vain for somebody else's.

use std::sync::Arc;

use tokio::time::timeout;
use tower::Service;

use super::core::{Core, Landing, Origin};
use super::load::{Failed, Keeping, Lent, Outcome, load};
use crate::capture::Capture;
use crate::error::CacheError;
use crate::flight::Leader;
use crate::status::Bypass;

/// Loads without a lease, and lands the answer on those who had given up before the load began. It
/// is not kept: whether anything came between cannot be known without a lease.
///
/// # Cancel safety
/// If it is dropped, whoever waits is told to look again.
pub(crate) async fn relieve<S, Req, C>(
    core: Arc<Core<C>>,
    leader: Leader<Landing>,
    job: Lent<S, Req>,
) where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Capture<S::Response>,
{
    let patience = core.policy.patience();
    let Ok(Ok(_leave)) = timeout(patience, core.loads.around.acquire()).await else {
        let error = CacheError::too_many_loads(leader.key(), core.policy.bounds.loads_around);
        return leader.land_on_all(&Landing::Failed(error));
    };
    let Some(job) = job.take() else { return };
    let begun = leader.line();
    let key = leader.key().digest();
    let before = core.loads.apart.times(&key);
    match load(job, &core, &leader, core.policy.when_abandoned).await {
        Outcome::Loaded(kept, keeping) => {
            core.loads.recall.forget(&key);
            core.loads.apart.forget(&key);
            let landing = Landing::Value(kept, Origin::Around(Bypass::WaitRanOut));
            match keeping {
                Keeping::Private => {
                    leader.land_on_opener(landing);
                    leader.land_on_all(&Landing::Private);
                }
                Keeping::Own => {
                    leader.land_on_opener(landing);
                    leader.part_with(Landing::Own);
                }
                _ => drop(leader.land(begun, &landing)),
            }
        }
        Outcome::Failed(failed) => fail(&core, &leader, failed, before),
        Outcome::Deserted => {}
    }
}

/// The failure of one load may be the fault of its request: the others load again with another.
fn fail<C>(core: &Core<C>, leader: &Leader<Landing>, mut failed: Failed, before: u32) {
    if let Landing::Value(_, origin) = &mut failed.landing {
        *origin = Origin::Around(Bypass::WaitRanOut);
    }
    let failure = failed.remembered(before, &core.policy).without_window();
    let is_confirmed = failed.is_confirmed(before);
    core.loads.apart.note(leader.key().digest(), failed.landing.clone(), 0, &failure);
    match is_confirmed {
        true => leader.land_on_all(&failed.landing),
        false => leader.land_on_opener(failed.landing),
    }
}
