//! A store behind an `Arc` is a store, whatever its type.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, Peek, Renew, Store, StoreFuture,
    Watch,
};
use crate::key::Key;
use crate::tag::{Tag, Tags};

/// So a program can choose its store when it starts, as an `Arc<dyn Store>`:
///
/// ```
/// use std::sync::Arc;
///
/// use bellwether::store::Store;
/// use bellwether::{Cache, MemoryStore};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new(10_000)); // or a `RedisStore`
/// let items: Cache<String> = Cache::builder("item", store).build();
/// # let _ = items;
/// ```
impl<S: Store + ?Sized> Store for Arc<S> {
    fn peek(&self, key: &Key) -> Peek {
        (**self).peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        (**self).watch(key)
    }

    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>> {
        (**self).lookup(key)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        (**self).acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        (**self).renew(lease, term)
    }

    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit> {
        (**self).commit(lease, draft)
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        (**self).fail(lease, failure)
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        (**self).abandon(claim)
    }

    fn invalidate(&self, key: Key) -> StoreFuture<bool> {
        (**self).invalidate(key)
    }

    fn expire(&self, key: Key) -> StoreFuture<bool> {
        (**self).expire(key)
    }

    fn lookup_tagged(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        (**self).lookup_tagged(key, tags)
    }

    fn invalidate_tag(&self, tag: Tag) -> StoreFuture<()> {
        (**self).invalidate_tag(tag)
    }

    fn expire_tag(&self, tag: Tag, spread: Duration) -> StoreFuture<()> {
        (**self).expire_tag(tag, spread)
    }
}
