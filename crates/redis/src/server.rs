//! `RedisServerStore`: the server as a store. Its errors are those of the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::outbox::ledger::WithdrawnDigest;
use super::store::StoreCore;
use bellwether::stats::StoreOperation;
use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, Lease, Peek, Renew, Settled, Store, StoreFuture, Tags,
    Watch, Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, StoreError};

/// The verbs of `Store`, counted and timed. A handle.
#[derive(Clone, Debug)]
pub(super) struct RedisServerStore(pub(super) Arc<StoreCore>);

impl RedisServerStore {
    pub(super) async fn look_up(
        &self,
        key: &Key,
        tags: &Tags,
    ) -> Result<Option<Entry>, StoreError> {
        let began = Instant::now();
        let found = self.0.lookup(key, tags).await;
        self.0.operations.ended(StoreOperation::Lookup, began, found)
    }
}

impl Store for RedisServerStore {
    fn peek(&self, key: &Key) -> Peek {
        let copy = self.0.near.as_ref().and_then(|near| near.find(key));
        copy.map_or(Peek::Unknown, Peek::Found)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.client.watch(key.digest())
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        let store = self.clone();
        Box::pin(async move { store.look_up(&key, &tags).await })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let began = Instant::now();
            let acquired = store.acquire(&claim, term, accept).await;
            store.operations.ended(StoreOperation::Acquire, began, acquired)
        })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        let store = Arc::clone(&self.0);
        let (claim, fence) = (lease.claim.clone(), lease.fence);
        Box::pin(async move {
            let began = Instant::now();
            let renewed = store.renew(&claim, fence, term).await;
            store.operations.ended(StoreOperation::Renew, began, renewed)
        })
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let began = Instant::now();
            let done = |()| Settled::Done;
            let (operation, settled) = match end {
                End::Commit(lease, draft) => {
                    (StoreOperation::Commit, store.commit(lease, draft).await)
                }
                End::Fail(lease, failure) => {
                    (StoreOperation::Fail, store.fail(lease, failure).await.map(done))
                }
                End::Abandon(claim) => {
                    (StoreOperation::Abandon, store.outbox.release(&claim).await.map(done))
                }
            };
            store.operations.ended(operation, began, settled)
        })
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let began = Instant::now();
            let (digest, key) = match &target {
                WithdrawalTarget::Key(key) => (WithdrawnDigest::Key(key.digest()), Some(key)),
                WithdrawalTarget::Tag(tag) => (WithdrawnDigest::Tag(tag.digest()), None),
            };
            let operation = match (digest, change) {
                (WithdrawnDigest::Key(_), Withdrawal::Invalidate) => StoreOperation::Invalidate,
                (WithdrawnDigest::Key(_), Withdrawal::Expire { .. }) => StoreOperation::Expire,
                (WithdrawnDigest::Tag(_), Withdrawal::Invalidate) => StoreOperation::InvalidateTag,
                (WithdrawnDigest::Tag(_), Withdrawal::Expire { .. }) => StoreOperation::ExpireTag,
            };
            let changed = store.outbox.withdraw(digest, change, key).await;
            store.operations.ended(operation, began, changed)
        })
    }
}

/// The default of [`RedisOptions::outage_ttl`](super::RedisOptions::outage_ttl).
pub(super) const OUTAGE_TTL: Duration = Duration::from_secs(1);
