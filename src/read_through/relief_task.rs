//! The task of a relief: a load of their own for those who waited in vain for somebody else's.

use std::sync::Arc;

use tokio::time::timeout;
use tower::Service;

use super::core::{Core, Landing, Origin};
use super::load::{Keeping, Lent, Outcome, load};
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
    match load(job, &core, &leader, core.policy.when_abandoned).await {
        Outcome::Loaded(kept, keeping) => {
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
        Outcome::Failed(failed) => leader.land_on_all(&failed.landing),
        Outcome::Deserted => {}
    }
}
