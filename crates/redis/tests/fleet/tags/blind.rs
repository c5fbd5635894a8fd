//! A store that is broken on purpose: a proof that the history test notices it.

use bellwether::store::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, Peek, Renew, Store, StoreFuture,
    Watch,
};
use bellwether::{Key, Tag, Tags};
use bellwether_redis::RedisStore;
use std::time::Duration;

/// A store that takes the epochs of tags at the commit. So it does not notice an invalidation that
/// came during the load.
#[derive(Clone, Debug)]
pub(super) struct BlindStore(pub(super) RedisStore);

impl Store for BlindStore {
    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit> {
        let store = self.0.clone();
        Box::pin(async move {
            // A claim that has the lease is granted it again, under the epochs of now.
            let claim = lease.claim().clone();
            let lease = match store.acquire(claim, lease.term(), Accept::Nothing).await? {
                Acquire::Lead { lease, .. } => lease,
                _ => lease,
            };
            store.commit(lease, draft).await
        })
    }

    fn peek(&self, key: &Key) -> Peek {
        self.0.peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.watch(key)
    }

    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>> {
        self.0.lookup(key)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.0.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.0.renew(lease, term)
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        self.0.fail(lease, failure)
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        self.0.abandon(claim)
    }

    fn invalidate(&self, key: Key) -> StoreFuture<bool> {
        self.0.invalidate(key)
    }

    fn expire(&self, key: Key) -> StoreFuture<bool> {
        self.0.expire(key)
    }

    fn lookup_tagged(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.0.lookup_tagged(key, tags)
    }

    fn invalidate_tag(&self, tag: Tag) -> StoreFuture<()> {
        self.0.invalidate_tag(tag)
    }

    fn expire_tag(&self, tag: Tag, spread: Duration) -> StoreFuture<()> {
        self.0.expire_tag(tag, spread)
    }
}
