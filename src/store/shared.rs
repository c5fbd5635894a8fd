//! A store behind an `Arc` is a store, whatever its type.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Accept, Acquire, Change, ChangeTarget, Claim, End, Entry, Lease, Peek, Renew, Settled, Store,
    StoreFuture, Watch,
};
use crate::key::Key;
use crate::tag::Tags;

/// So a program can choose its store when it starts, as an `Arc<dyn Store>`:
///
/// ```
/// use std::sync::Arc;
///
/// use bellwether::store::Store;
/// use bellwether::{Cache, MemoryStore};
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new(10_000)); // or a `RedisStore`
/// let items: Cache<u64, String> = Cache::builder("item", store).coalesce_only().build()?;
/// # let _ = items;
/// # Ok::<_, bellwether::ConfigError>(())
/// ```
impl<S: Store + ?Sized> Store for Arc<S> {
    fn peek(&self, key: &Key) -> Peek {
        (**self).peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        (**self).watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        (**self).lookup(key, tags)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        (**self).acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        (**self).renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        (**self).settle(end)
    }

    fn change(&self, target: ChangeTarget, change: Change) -> StoreFuture<bool> {
        (**self).change(target, change)
    }
}
