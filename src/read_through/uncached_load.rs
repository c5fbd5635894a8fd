//! The task of an uncached load, for callers whose wait for another load ran out.

use std::sync::Arc;

use tokio::time::timeout;
use tower::Service;

use super::core::Core;
use super::job::LentJob;
use super::load::{AnswerStorage, FailedLoad, LoadCause, LoaderAnswer, load};
use super::outcome::{Outcome, ValueOrigin};
use crate::codec::Codec;
use crate::error::{BoxError, CacheError};
use crate::flight::Leader;
use crate::policy::WhenAbandoned;
use crate::stats::LoadReason;
use crate::status::BypassReason;
use crate::trace::CallerSpan;

/// Loads without a lease, and completes the callers that had given up before the load began. The
/// answer is not stored: without a lease, an invalidation during the load cannot be detected. So
/// the load ends when all of them have left.
///
/// # Cancel safety
/// If it is dropped, the waiters ask again.
pub(crate) async fn load_uncached<S, Req, C>(
    core: Arc<Core<C>>,
    leader: Leader<Outcome>,
    job: LentJob<S, Req>,
) where
    S: Service<Req>,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    C: Codec<S::Response>,
{
    let max_wait = core.policy.max_wait();
    let permit = tokio::select! {
        permit = timeout(max_wait, core.loads.uncached_permits.acquire()) => permit,
        () = leader.abandoned() => return,
    };
    let Ok(Some(_permit)) = permit else {
        let error = CacheError::too_many_loads(leader.key(), core.policy.bounds.uncached_loads);
        return leader.complete_all(&Outcome::Failed(error));
    };
    let Some(job) = job.take() else { return };
    let begun = leader.generation();
    let key = leader.key().digest();
    let before = core.loads.unshared_failures.times(&key);
    let cause = LoadCause { why: LoadReason::WaitRanOut, trigger: CallerSpan::default() };
    match load(job, &core, &leader, WhenAbandoned::Cancel, cause).await {
        LoaderAnswer::Loaded(kept, decision, _) => {
            core.loads.failures.forget(&key);
            core.loads.unshared_failures.forget(&key);
            let outcome = Outcome::Value(kept, ValueOrigin::Uncached(BypassReason::WaitRanOut));
            match decision {
                AnswerStorage::PrivateKey => {
                    leader.complete_opener(&outcome);
                    leader.complete_all(&Outcome::PrivateKey);
                }
                AnswerStorage::PrivateOnce => {
                    leader.complete_opener(&outcome);
                    leader.close_with(Outcome::PrivateOnce);
                }
                _ => leader.complete_before(begun, &outcome),
            }
        }
        LoaderAnswer::Failed(failed) => fail(&core, &leader, failed, before),
        LoaderAnswer::Abandoned => {}
    }
}

/// Completes the opener only, until a second failure in a row: the request may be at fault. The
/// other waiters load again, with the request of one of them.
fn fail<C>(core: &Core<C>, leader: &Leader<Outcome>, mut failed: FailedLoad, before: u32) {
    if let Outcome::Value(_, origin) = &mut failed.outcome {
        *origin = ValueOrigin::Uncached(BypassReason::WaitRanOut);
    }
    let failure = failed.remembered(before, &core.policy).without_window();
    let is_confirmed = failed.is_confirmed(before);
    if failed.counts() {
        let key = leader.key().digest();
        core.loads.unshared_failures.note(key, failed.outcome.clone(), 0, &failure);
    }
    match is_confirmed {
        true => leader.complete_all(&failed.outcome),
        false => leader.complete_opener(&failed.outcome),
    }
}
