//! Puts: what is stored outside of a load. Each takes the lease of its key, and stores under it.

use std::time::Duration;

use super::core::Core;
use super::load;
use super::step::{self, AfterPut, AnswerKind, PutAttempt};
use crate::codec::Codec;
use crate::error::StoreError;
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::stats::InvalidationEvent;
use crate::store::{
    Accept, Acquire, Claim, Draft, End, Entry, Settled, Withdrawal, WithdrawalTarget,
};
use crate::tag::Tags;

/// Stores an answer unless `replaces` refuses the stored entry, whose tags it gets. Returns whether it was
/// stored. A failure of the store is logged.
pub(super) async fn replace<R, C: Codec<R>>(
    core: &Core<C>,
    key: &Key,
    answer: C::Kept,
    lifetimes: Lifetimes,
    replaces: impl FnOnce(Option<&Entry>) -> bool,
) -> bool {
    let draft = |stored: Option<&Entry>| {
        if !replaces(stored) {
            return None;
        }
        let tags = Tags::unbounded(core.codec.tags(&answer));
        let tags = stored.map_or(Tags::none(), Entry::tags).union(&tags).ok()?;
        let (value, _) = load::encoded(core, key, answer).ok()?;
        let draft = Draft::new(value, core.codec.id(), lifetimes);
        Some(draft.tagged(core.tags.and_everything(&tags)))
    };
    match under_lease(core, key, &Tags::none(), draft).await {
        Ok(attempt) => attempt == PutAttempt::Stored,
        Err(error) => {
            core.statistics.store_failed("an answer may not be stored", &error);
            false
        }
    }
}

/// Whether an entry of a key is stored, or a load of it is under way. Also if the store fails.
pub(super) async fn is_in_use<C>(core: &Core<C>, key: &Key) -> bool {
    let mut is_stored = true;
    let look = |stored: Option<&Entry>| {
        is_stored = stored.is_some();
        None
    };
    _ = under_lease(core, key, &Tags::none(), look).await;
    is_stored
}

/// Stores an answer that was just written to the source, or only clears the key if the cache is off. Returns
/// whether it was stored.
pub(super) async fn put<R, C: Codec<R>>(
    core: &Core<C>,
    key: &Key,
    tags: &Tags,
    answer: R,
) -> Result<bool, StoreError> {
    let answer = load::classified(core, key, tags, core.codec.keep(answer));
    let is_storable = core.policy.enabled && answer.kind == AnswerKind::Value;
    let draft = answer.draft.filter(|it| is_storable && it.is_value());
    let draft = draft.and_then(|draft| {
        let tags = tags.union(&draft.tags).ok()?;
        Some(draft.tagged(core.tags.and_everything(&tags)).invalidating())
    });
    let put = put_draft(core, key, draft).await;
    if let Ok(true) = put {
        core.note_success(key, AnswerKind::Value);
    }
    core.statistics.changed(InvalidationEvent::Put, put)
}

/// Attempts to store a draft, and invalidates the key if that fails. Returns whether it was stored.
async fn put_draft<C>(core: &Core<C>, key: &Key, draft: Option<Draft>) -> Result<bool, StoreError> {
    let mut is_first = true;
    loop {
        let attempted = match &draft {
            // With its tags, so that an invalidation of one is noticed, whatever the store forgets.
            Some(draft) => under_lease(core, key, &draft.tags, |_| Some(draft.clone())).await,
            None => Ok(PutAttempt::Refused),
        };
        let next = step::after_put(attempted.as_ref().ok().copied(), is_first);
        if next == AfterPut::End {
            return Ok(true);
        }
        let target = WithdrawalTarget::Key(key.clone());
        let cleared = core.store.withdraw(target, Withdrawal::Invalidate).await;
        match (attempted, cleared) {
            // The error of the invalidation, if the store keeps and repeats that.
            (Err(error), cleared) => {
                return Err(cleared.err().filter(StoreError::is_pending).unwrap_or(error));
            }
            (Ok(_), Err(error)) => return Err(error),
            (Ok(_), Ok(_)) if next == AfterPut::Clear => return Ok(false),
            (Ok(_), Ok(_)) => is_first = false,
        }
    }
}

/// Takes the lease of a key for a claim with these tags, and stores under it what is made of the
/// entry that is there.
async fn under_lease<C>(
    core: &Core<C>,
    key: &Key,
    tags: &Tags,
    draft: impl FnOnce(Option<&Entry>) -> Option<Draft>,
) -> Result<PutAttempt, StoreError> {
    let store = &core.store;
    let claim = Claim::new(key.clone()).tagged(tags.clone());
    let Acquire::Lead { lease, stale, .. } = store.acquire(claim, TERM, Accept::Nothing).await?
    else {
        return Ok(PutAttempt::Busy);
    };
    if let Some(error) = lease.outage {
        // What is stored in this process alone replaces nothing elsewhere.
        core.abandon(lease.claim).await;
        return Err(error);
    }
    let Some(draft) = draft(stale.as_ref()) else {
        core.abandon(lease.claim).await;
        return Ok(PutAttempt::Refused);
    };
    Ok(match store.settle(End::Commit(lease, draft)).await? {
        Settled::Done => PutAttempt::Stored,
        Settled::Superseded | Settled::TooLarge => PutAttempt::Refused,
    })
}

/// The term of a lease that is taken only to store an answer.
const TERM: Duration = Duration::from_secs(2);
