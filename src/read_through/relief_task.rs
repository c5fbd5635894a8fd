//! The task of a relief: a load of their own for those who waited in vain for somebody else's.

use std::sync::Arc;

use tower::Service;

use super::core::{Core, Landing, Origin};
use super::load::{Lent, Outcome, load};
use crate::capture::Capture;
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
    let Some(job) = job.take() else { return };
    let begun = leader.line();
    match load(job, &core, &leader).await {
        Outcome::Loaded(kept, _) => {
            let origin = Origin::Around(Bypass::WaitRanOut);
            leader.land(begun, &Landing::Value(kept, origin));
        }
        Outcome::Failed(answer) => leader.land_on_all(&answer),
        Outcome::Deserted => {}
    }
}
