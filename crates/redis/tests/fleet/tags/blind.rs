//! A store that is broken on purpose: a proof that the history test notices it.

use bellwether::Key;
use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, Lease, Peek, Renew, Settled, Store, StoreFuture, Tags,
    Watch, Withdrawal, WithdrawalTarget,
};
use bellwether_redis::RedisStore;
use std::time::Duration;

/// A store that takes the epochs of tags at the commit. So it does not notice an invalidation that
/// came during the load.
#[derive(Clone, Debug)]
pub(super) struct BlindStore(pub(super) RedisStore);

impl Store for BlindStore {
    fn settle(&self, end: End) -> StoreFuture<Settled> {
        let store = self.0.clone();
        Box::pin(async move {
            let End::Commit(lease, draft) = end else {
                return store.settle(end).await;
            };
            // A claim that has the lease is granted it again, under the epochs of now.
            let claim = lease.claim.clone();
            let lease = match store.acquire(claim, lease.term, Accept::Nothing).await? {
                Acquire::Lead { lease, .. } => lease,
                _ => lease,
            };
            store.settle(End::Commit(lease, draft)).await
        })
    }

    fn peek(&self, key: &Key) -> Peek {
        self.0.peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.0.lookup(key, tags)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.0.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.0.renew(lease, term)
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        self.0.withdraw(target, change)
    }
}
