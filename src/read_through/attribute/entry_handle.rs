//! `EntryHandle`: the stored answer of one call of a function.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::CacheError;
use crate::key::Key;
use crate::read_through::client::CacheClient;
use crate::read_through::handle::{Handle, count_found};
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
/// answers there are [`invalidate_many`](Self::invalidate_many) and
/// [`expire_many`](Self::expire_many), which take the entries.
pub struct EntryHandle<V> {
    key: Key,
    tags: Tags,
    values: Arc<dyn ValueAccess<V>>,
}

/// Reads and stores the values of a layer, whatever its codec.
trait ValueAccess<V>: Send + Sync {
    fn handle(&self) -> Handle;

    fn get<'a>(
        &'a self,
        key: &'a Key,
        tags: &'a Tags,
    ) -> BoxFuture<'a, Result<Option<V>, CacheError>>;

    fn put<'a>(
        &'a self,
        key: Key,
        tags: &'a Tags,
        value: V,
    ) -> BoxFuture<'a, Result<bool, CacheError>>;
}

impl<V: Send + Sync + 'static, C: Codec<V>> ValueAccess<V> for CacheClient<C> {
    fn handle(&self) -> Handle {
        Self::handle(self)
    }

    fn get<'a>(
        &'a self,
        key: &'a Key,
        tags: &'a Tags,
    ) -> BoxFuture<'a, Result<Option<V>, CacheError>> {
        Box::pin(Self::get(self, key, tags))
    }

    fn put<'a>(
        &'a self,
        key: Key,
        tags: &'a Tags,
        value: V,
    ) -> BoxFuture<'a, Result<bool, CacheError>> {
        Box::pin(Self::put(self, key, tags, value))
    }
}

impl<V> EntryHandle<V> {
    pub(super) fn new<C>(client: CacheClient<C>, key: Key, tags: Tags) -> Self
    where
        V: Send + Sync + 'static,
        C: Codec<V>,
    {
        Self { key, tags, values: Arc::new(client) }
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
        self.values.get(&self.key, &self.tags).await
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
        self.values.put(self.key.clone(), &self.tags, answer).await
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
        self.values.handle().invalidate(&self.key).await
    }

    /// Removes many answers, each as [`invalidate`](Self::invalidate) does, 256 at a time. Returns how
    /// many there were. An entry that is given twice counts once.
    ///
    /// The entries may be of different arguments, and of different layers:
    ///
    /// ```
    /// use bellwether::{ByKey, EntryHandle, ReadThroughLayer, read_through};
    ///
    /// #[read_through(
    ///     layer = layer,
    ///     key = "price/{country}/{sku}",
    ///     skip(layer),
    ///     ttl = "60s",
    ///     stale_while_revalidate = "60s",
    ///     entry_fn = price_entry,
    /// )]
    /// async fn price(layer: &ReadThroughLayer<ByKey>, country: &str, sku: u64) -> std::io::Result<u64> {
    ///     Ok(sku * 100)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let layer = ReadThroughLayer::by_key(bellwether::MemoryStore::new(10));
    /// price(&layer, "de", 1).await?;
    /// price(&layer, "fr", 2).await?;
    ///
    /// // After a change, by the arguments of the calls:
    /// let changed = [("de", 1), ("fr", 2), ("fr", 3)];
    /// let entries = changed.map(|(country, sku)| price_entry(&layer, country, sku));
    /// assert_eq!(EntryHandle::expire_many(entries.clone()).await?, 2); // served until they are loaded
    /// assert_eq!(EntryHandle::invalidate_many(entries).await?, 2); // gone
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Handle::invalidate_many`](crate::Handle::invalidate_many): an error of a store, after all
    /// entries have been tried.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate_many(
        entries: impl IntoIterator<Item = Self>,
    ) -> Result<usize, CacheError> {
        let one = |entry: Self| async move { entry.invalidate().await };
        count_found(Self::unique(entries).map(one)).await
    }

    /// Makes many answers stale, each as [`expire`](Self::expire) does, 256 at a time. Returns how many
    /// there were. An entry that is given twice counts once. See
    /// [`invalidate_many`](Self::invalidate_many) for an example.
    ///
    /// # Errors
    /// As [`Handle::expire_many`](crate::Handle::expire_many).
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire_many(entries: impl IntoIterator<Item = Self>) -> Result<usize, CacheError> {
        let one = |entry: Self| async move { entry.expire().await };
        count_found(Self::unique(entries).map(one)).await
    }

    /// Each of these entries once: a key is another entry in another store only.
    fn unique(entries: impl IntoIterator<Item = Self>) -> impl Iterator<Item = Self> {
        let mut seen = HashSet::new();
        let is_new =
            move |entry: &Self| seen.insert((entry.values.handle().store_id(), entry.key.clone()));
        entries.into_iter().filter(is_new)
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
        self.values.handle().expire(&self.key).await
    }
}

impl<V> Clone for EntryHandle<V> {
    fn clone(&self) -> Self {
        let Self { key, tags, values } = self;
        Self { key: key.clone(), tags: tags.clone(), values: Arc::clone(values) }
    }
}

impl<V> fmt::Debug for EntryHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryHandle").field("key", &self.key).finish_non_exhaustive()
    }
}
