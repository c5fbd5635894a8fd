//! `EntryHandle`: the stored answer of one call of a function.

use std::fmt;

use crate::codec::Codec;
use crate::error::CacheError;
use crate::key::Key;
use crate::read_through::client::CacheClient;
use crate::tag::Tags;

/// A handle to the stored answer of one call of a function with the attribute
/// [`#[read_through]`](macro@crate::read_through). Made by the function of its option `entry_fn`,
/// which takes the arguments of that call, by their types. So the key cannot be another one.
///
/// ```
/// use bellwether::{ByKey, ReadThroughLayer, read_through};
///
/// #[read_through(
///     layer = layer,
///     key = "price/{sku}",
///     skip(layer),
///     ttl = "60s",
///     entry_fn = price_entry,
/// )]
/// async fn price(layer: &ReadThroughLayer<ByKey>, sku: u64) -> std::io::Result<u64> {
///     Ok(sku * 100)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let layer = ReadThroughLayer::by_key(bellwether::MemoryStore::new(10));
/// let entry = price_entry(&layer, 42);
/// assert_eq!(entry.get().await?, None);
/// assert_eq!(price(&layer, 42).await?, 4_200);
/// assert_eq!(entry.get().await?, Some(4_200));
///
/// assert!(entry.invalidate().await?);
/// assert_eq!(entry.get().await?, None);
/// # Ok(())
/// # }
/// ```
///
/// The methods are those of a [`Cache`](crate::Cache), without the argument for the key. For many
/// answers of a layer there are [`invalidate_many`](crate::Handle::invalidate_many) and
/// [`expire_many`](crate::Handle::expire_many) of its handle, which take the [keys](Self::key).
pub struct EntryHandle<V> {
    key: Key,
    tags: Tags,
    client: CacheClient<dyn Codec<V, Kept = V>>,
}

impl<V: Send + Sync + 'static> EntryHandle<V> {
    pub(super) fn new(client: CacheClient<dyn Codec<V, Kept = V>>, key: Key, tags: Tags) -> Self {
        Self { key, tags, client }
    }

    /// The key of the call.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The answer if it is stored and fresh. Loads nothing, and waits for no load.
    ///
    /// # Errors
    /// As [`Cache::get`](crate::Cache::get).
    ///
    /// # Cancel safety
    /// As there.
    pub async fn get(&self) -> Result<Option<V>, CacheError> {
        self.client.get(&self.key, &self.tags).await
    }

    /// Stores an answer that was just written to the source, so that the next caller need not load
    /// it. Returns whether it was stored. See [`Cache::put`](crate::Cache::put) for what it promises,
    /// and for the races of writers.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn put(&self, answer: V) -> Result<bool, CacheError> {
        self.client.put(self.key.clone(), &self.tags, answer).await
    }

    /// Removes the answer. Returns whether there was one. See
    /// [`Handle::invalidate`](crate::Handle::invalidate).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate(&self) -> Result<bool, CacheError> {
        self.client.handle().invalidate(&self.key).await
    }

    /// Makes the answer stale, as if its ttl had passed. Returns whether there was one. See
    /// [`Handle::expire`](crate::Handle::expire).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire(&self) -> Result<bool, CacheError> {
        self.client.handle().expire(&self.key).await
    }
}

impl<V> fmt::Debug for EntryHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryHandle").field("key", &self.key).finish_non_exhaustive()
    }
}
