//! `Cache`: values by key, loaded by a function where they are missing.
//!
//! A [`Cache`] is what most programs need: a key, a function that loads, and an answer. It is built
//! on the flights, leases and policies of a [`ReadThroughLayer`](crate::ReadThroughLayer), so
//! everything that is said about requests of a layer holds for its calls.

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod attribute;
mod names;
mod traits;

use std::error::Error as StdError;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower::service_fn;

use crate::codec::{Cacheability, Codec, InProcess, Json, RuledCodec};
use crate::config_error::ConfigError;
use crate::delegate_load_options;
use crate::error::{BoxError, CacheError};
use crate::key::{CacheKey, Key, KeyOf};
use crate::read_through::adapter_cache::AdapterCache;
use crate::read_through::error_rules::ErrorClass;
use crate::read_through::future::AnswerFuture;
use crate::read_through::handle::{Changed, Handle};
use crate::read_through::key_request::RequestOptions;
use crate::read_through::layer::{ReadThroughLayer, ReadThroughLayerBuilder};
use crate::read_through::many::{BatchFuture, BatchResponseOf, load_many};
use crate::stats::CacheStats;
use crate::store::{InProcessStore, Store};
use crate::tag::{Tag, Tags};

/// Values of one type, each under a key of one type, loaded by a function where they are missing.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::{Cache, MemoryStore};
/// # #[derive(Clone)]
/// # struct Pool;
/// # async fn query(_: &Pool, sku: u64) -> Result<String, std::io::Error> { Ok(format!("item {sku}")) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = Pool;
/// let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379", "shop").await?
/// let items: Cache<u64, String> = Cache::builder("item", store).ttl(Duration::from_secs(60)).build()?;
///
/// let item = items.get_or_load(42, async move || query(&pool, 42).await).await?;
/// assert_eq!(item, "item 42");
///
/// // After the source has changed:
/// items.invalidate(42).await?;
/// # Ok(())
/// # }
/// ```
///
/// A handle: clones share one state, and cost as much as an `Arc`. It has no lifetime and needs no
/// type of a closure, so it fits a struct field, a `static` and the `State` of axum as `Cache<u64, Item>`.
///
/// # Keys
/// A key is of type `K`: a number, a text, a tuple such as `(String, u64)`, or a type of your own with
/// [`#[derive(CacheKey)]`](crate::CacheKey). A call takes the key or a reference to it, and a `&str` for
/// a `String`. A key of another type does not compile, so readers and writers cannot use different keys
/// for one value. [`key`](Self::key) shows it with the name of the cache, as a [`Key`].
///
/// ```compile_fail,E0277
/// # async fn renamed(items: bellwether::Cache<u64, String>) -> Result<(), bellwether::CacheError> {
/// items.invalidate("42").await?; // `&str` is no key of a cache whose keys are `u64`
/// # Ok(())
/// # }
/// ```
///
/// **Each type of value needs a name of its own** in a store: the name keeps the values of two
/// caches apart, in all processes and across versions of a program. The type itself is no part of
/// the key, because its name may change with the compiler or by a rename. Then processes of two
/// versions would invalidate different keys. If two caches of one process share a name all the same,
/// each replaces the values of the other, and a warning in the log names the key. From a shared
/// store, a value of the other type is decoded if its bytes fit.
///
/// # One load
/// Concurrent calls for one key share a load: in this process, and in all processes over one shared
/// store. That load runs the function of one of the callers. So the functions given for one key
/// must load the same value, and should have the same type of error: callers with another type share
/// no load of this process.
///
/// Two caches over one store are like two processes, even if they have the same name. So build a
/// cache once, and clone it.
pub struct Cache<K, V, C = Json> {
    client: AdapterCache<RuledCodec<V, C>>,
    name: Arc<str>,
    options: RequestOptions,
    keys: PhantomData<fn(K)>,
}

impl<K, V> Cache<K, V> {
    /// Begins a cache over a store. Its keys are of this kind: see [`Key::of`](crate::Key::of).
    ///
    /// How long values are fresh is said first, by [`ttl`](CacheWithoutLifetime::ttl).
    pub fn builder<S: Store>(name: &str, store: S) -> CacheWithoutLifetime<K, V> {
        let layer = ReadThroughLayer::without_keys(store).name(name).map_codec(RuledCodec::new);
        let name = name.into();
        CacheWithoutLifetime(CacheBuilder { name, version: None, layer, keys: PhantomData })
    }
}

impl<K, V> Cache<K, V, InProcess> {
    /// Begins a cache of values that are never encoded, over a store of this process alone. They are
    /// any `Clone` values, such as an `Arc`, and need nothing of serde. As [`builder`](Self::builder)
    /// otherwise; [`InProcess`] has an example.
    pub fn in_process<S: InProcessStore>(
        name: &str,
        store: S,
    ) -> CacheWithoutLifetime<K, V, InProcess> {
        CacheWithoutLifetime(Cache::<K, V>::builder(name, store).0.over(InProcess))
    }
}

impl<K, V, C> Cache<K, V, C> {
    /// The same cache, whose calls need their answers by `deadline`: see
    /// [`KeyRequest::deadline`](crate::service::KeyRequest::deadline).
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { options: self.options.clone().deadline(deadline), ..self.clone() }
    }

    /// The same cache, whose calls accept no stored value: they load, or wait for a load under way. See
    /// [`KeyRequest::force_refresh`](crate::service::KeyRequest::force_refresh).
    #[must_use]
    pub fn with_refresh(&self) -> Self {
        Self { options: self.options.clone().force_refresh(true), ..self.clone() }
    }

    /// The same cache, whose calls have these tags: the values that they load or put get them. Give
    /// all calls for a key the same tags: an entry or a running load without a tag of the call is a
    /// miss. For tags that depend on the value, there is [`CacheBuilder::answer_tags`].
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use std::time::Duration;
    /// use bellwether::{Cache, MemoryStore, Tag};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let stock: Cache<(&str, u64), u64> =
    ///     Cache::builder("stock", MemoryStore::new(10)).ttl(Duration::from_secs(60)).build()?;
    /// let berlin = stock.tagged([Tag::of("warehouse").with("berlin")]);
    /// let load = async || Ok::<_, Infallible>(7);
    /// assert_eq!(berlin.get_or_load(("berlin", 42), load).await?, 7);
    ///
    /// stock.invalidate_tag(&Tag::of("warehouse").with("berlin")).await?;
    /// assert_eq!(stock.get(("berlin", 42)).await?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With more than [`Tags::MOST`] of them, calls that load, get or put values fail with
    /// [`CacheErrorKind::TooManyTags`](crate::CacheErrorKind::TooManyTags).
    #[must_use]
    pub fn tagged(&self, tags: impl IntoIterator<Item = Tag>) -> Self {
        Self { options: self.options.clone().tagged(Tags::unbounded(tags)), ..self.clone() }
    }

    /// The key of a value: the name of the cache, and this part.
    #[inline]
    pub fn key(&self, key: impl KeyOf<K>) -> Key {
        Key::of(&self.name).with(key)
    }

    /// The kind of all its [keys](Self::key): its name, and its [version](CacheBuilder::version) if it has one.
    pub fn kind(&self) -> &str {
        &self.name
    }

    /// A handle to the stored values, by their whole keys.
    pub fn handle(&self) -> Handle {
        self.client.handle()
    }

    /// Changes the source, and then invalidates the value of a key. Both run to their end in a task, also if the
    /// caller leaves. For a write that concerns several keys, there is [`Invalidation`](crate::change::Invalidation).
    ///
    /// ```
    /// # async fn example(prices: bellwether::Cache<u64, u64>) -> std::io::Result<()> {
    /// # let update = async |_: u64, _: u64| Ok::<_, std::io::Error>(());
    /// let changed = prices.change(42, async move { update(42, 999).await }).await?;
    /// assert!(matches!(changed, bellwether::Changed::Invalidated(()))); // or pending
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Handle::change`]: the error of the write. That of the invalidation is in
    /// [`Changed::Pending`].
    ///
    /// # Panics
    /// As there.
    ///
    /// # Cancel safety
    /// As there: once it has been polled, dropping it stops neither the write nor the invalidation.
    pub async fn change<T: Send + 'static, E: Send + 'static>(
        &self,
        key: impl KeyOf<K>,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        self.handle().change(&self.key(key), write).await
    }

    /// Removes the value of a key. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Handle::invalidate`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate(&self, key: impl KeyOf<K>) -> Result<bool, CacheError> {
        self.handle().invalidate(&self.key(key)).await
    }

    /// Removes the values of many keys at once. Returns how many there were.
    ///
    /// # Errors
    /// As [`Handle::invalidate_many`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate_many<Q: KeyOf<K>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<usize, CacheError> {
        let keys: Vec<_> = keys.into_iter().map(|key| self.key(key)).collect();
        self.handle().invalidate_many(keys).await
    }

    /// Makes the value of a key stale, as if its ttl had passed. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Handle::expire`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire(&self, key: impl KeyOf<K>) -> Result<bool, CacheError> {
        self.handle().expire(&self.key(key)).await
    }

    /// Makes the values of many keys stale at once. Returns how many there were.
    ///
    /// # Errors
    /// As [`Handle::expire_many`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire_many<Q: KeyOf<K>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<usize, CacheError> {
        let keys: Vec<_> = keys.into_iter().map(|key| self.key(key)).collect();
        self.handle().expire_many(keys).await
    }

    /// Removes all values with a tag, of all caches over this store.
    ///
    /// # Errors
    /// As [`Handle::invalidate_tag`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate_tag(&self, tag: &Tag) -> Result<(), CacheError> {
        self.handle().invalidate_tag(tag).await
    }

    /// Makes all values with a tag stale, one after the other over the time `spread`.
    ///
    /// # Errors
    /// As [`Handle::expire_tag`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire_tag(&self, tag: &Tag, spread: Duration) -> Result<(), CacheError> {
        self.handle().expire_tag(tag, spread).await
    }

    /// As [`change`](Self::change), for all values [with a tag](Self::invalidate_tag).
    ///
    /// # Errors
    /// As there. So are its panics and its cancel safety.
    pub async fn change_tag<T: Send + 'static, E: Send + 'static>(
        &self,
        tag: &Tag,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        self.handle().change_tag(tag, write).await
    }

    /// Removes all values of [clearable](CacheBuilder::clearable) caches over this store.
    ///
    /// # Errors
    /// As [`Handle::clear`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn clear(&self) -> Result<(), CacheError> {
        self.handle().clear().await
    }

    /// What this cache and its clones have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.client.stats()
    }

    /// How many keys this process looks up or loads right now.
    pub fn in_flight(&self) -> usize {
        self.client.in_flight()
    }
}

/// The bounds stand at each call, so that the compiler says what a value lacks.
impl<K, V, C> Cache<K, V, C> {
    /// The value of a key. If there is none, `load` loads it, once for all concurrent callers.
    ///
    /// It is named by what this crate calls that work, a *load*: moka has the same call as
    /// `try_get_with`, and FusionCache as `GetOrSet`. There is no call for a function that cannot
    /// fail: let it return `Ok::<_, Infallible>(value)`.
    ///
    /// `load` is any function without parameters that returns a future of a `Result`, such as
    /// `async move || query(&pool, sku).await`. It owns what it uses, because a load may outlive
    /// its caller. The error may be of any type that becomes a [`BoxError`]: callers that share a load
    /// share its error as an [`Error::Load`](crate::Error::Load).
    ///
    /// It runs in a task of its own, in a [span](crate::trace) below that of the caller that
    /// opened the load. Other task-locals of that caller are not there: capture what it needs.
    ///
    /// The future gives the value; [`with_status`](AnswerFuture::with_status) adds how it came about.
    ///
    /// # Errors
    /// The error of the function, or why the cache has no answer.
    ///
    /// # Cancel safety
    /// As [`AnswerFuture`]: dropping it takes nothing from other callers.
    #[doc(alias = "get_with")]
    #[doc(alias = "try_get_with")]
    #[doc(alias = "GetOrSet")]
    #[inline]
    pub fn get_or_load<F, L, E>(&self, key: impl KeyOf<K>, load: F) -> AnswerFuture<V, E>
    where
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<V, E>> + Send,
        E: Into<BoxError> + Send + Sync + 'static,
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        let run = service_fn(|load: F| load());
        self.client.request(self.key(key), self.options.clone(), &run, load)
    }

    /// The values of many keys, in their order. One call of `load` loads those that are missing.
    ///
    /// Each key behaves as it would alone: it is coalesced with other callers, may get a stale answer,
    /// and fails individually. But one round trip looks up all keys, and one call loads those that
    /// miss. It starts as soon as each other key has its answer or waits for the load of another caller.
    ///
    /// `load` gets the missing keys and returns a [`BatchResponse`](crate::batch::BatchResponse): a `Vec` of results
    /// in their order, or, for a `Cache<K, Option<T>>`, a map. It is cloned, because it may be called again: for keys that
    /// have to be loaded later, as when another caller's load fails, and for more than 1,000 keys.
    ///
    /// ```
    /// use std::collections::HashMap;
    ///
    /// use bellwether::{Cache, MemoryStore};
    /// # #[derive(Clone)]
    /// # struct Pool;
    /// // SELECT sku, name FROM items WHERE sku = ANY($1)
    /// async fn query_many(pool: &Pool, skus: Vec<u64>) -> std::io::Result<HashMap<u64, String>> {
    ///     Ok(skus.into_iter().filter(|sku| *sku < 100).map(|sku| (sku, format!("item {sku}"))).collect())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool;
    /// # let minute = std::time::Duration::from_secs(60);
    /// let items: Cache<u64, Option<String>> =
    ///     Cache::builder("item", MemoryStore::new(10_000)).ttl(minute).build()?;
    ///
    /// let load = async move |skus| query_many(&pool, skus).await;
    /// let mut page = vec![];
    /// for item in items.get_or_load_many([7, 4, 1_000], load).await {
    ///     page.push(item?);
    /// }
    /// assert_eq!(page, [Some("item 7".to_owned()), Some("item 4".to_owned()), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As [`BatchFuture`].
    pub fn get_or_load_many<F, L, A, E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: F,
    ) -> BatchFuture<V, E>
    where
        K: CacheKey + Clone + Send + 'static,
        F: FnOnce(Vec<K>) -> L + Clone + Send + 'static,
        L: Future<Output = Result<A, E>> + Send + 'static,
        A: BatchResponseOf<K, V, E>,
        E: Into<BoxError> + Send + Sync + 'static,
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        let keys = keys.into_iter().map(|key| (self.key(&key), key)).collect();
        load_many(&self.client.0, keys, &self.options, load)
    }

    /// The value of a key if it is stored and fresh. Loads nothing, and waits for no load.
    ///
    /// # Errors
    /// If the store fails. A value that this process has is given all the same.
    ///
    /// # Cancel safety
    /// It changes nothing, so it may be dropped at any time.
    pub async fn get(&self, key: impl KeyOf<K>) -> Result<Option<V>, CacheError>
    where
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        self.client.get(&self.key(key), &self.options.tags).await
    }

    /// Stores a value that was just written to the source. Returns whether it was stored.
    ///
    /// Call it after the source has changed, as [`invalidate`](Self::invalidate). When it has
    /// returned `Ok`, no older value is served any more, whether this one was stored or not: the
    /// value of a load that began before is not stored, and an invalidation that comes later
    /// removes this value. It is not stored if it cannot be (its
    /// [`Cacheability`](crate::codec::Cacheability) forbids it, or it is too large), or if another `put`
    /// or an invalidation of the key runs at the same time. Then the key is empty, and the next
    /// caller loads it.
    ///
    /// # Races
    /// The cache sees the order of the calls and not the order of the writes. If two tasks write
    /// the source and then call `put` one after the other in reverse order, the older value stays
    /// until its ttl ends. So order the writers of a key (one writer, a lock, a transaction that
    /// ends after the `put`), or let them call `invalidate`, which has no such race.
    ///
    /// # Errors
    /// If the store fails, or the key is too long. Then an older value may still be stored.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the value may be stored or not, and an older value may
    /// still be there.
    #[doc(alias = "insert")]
    pub async fn put(&self, key: impl KeyOf<K>, value: V) -> Result<bool, CacheError>
    where
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        self.client.put(self.key(key), &self.options.tags, value).await
    }
}

/// A cache to be built, of which it is not said yet how long its values are fresh. Made by
/// [`Cache::builder`].
#[derive(Debug)]
#[must_use]
pub struct CacheWithoutLifetime<K, V, C = Json>(CacheBuilder<K, V, C>);

impl<K, V, C> CacheWithoutLifetime<K, V, C> {
    /// Sets the time to live: how long a value is fresh. At most 366 days; more counts as that. How old a
    /// value may be depends on your data, so there is no default.
    #[doc(alias = "time_to_live")]
    pub fn ttl(self, ttl: Duration) -> CacheBuilder<K, V, C> {
        CacheBuilder { layer: self.0.layer.ttl(ttl), ..self.0 }
    }

    /// A cache that stores nothing: concurrent callers of a process share a load, and processes load one
    /// after another.
    pub fn coalesce_only(self) -> CacheBuilder<K, V, C> {
        CacheBuilder { layer: self.0.layer.coalesce_only(), ..self.0 }
    }
}

/// The options of a [`Cache`]. Made by [`Cache::builder`].
///
/// They are the options of a [`ReadThroughLayerBuilder`], by the same names and with the same defaults. What is
/// wrong with one of them is said by [`build`](Self::build).
#[derive(Debug)]
#[must_use]
pub struct CacheBuilder<K, V, C = Json> {
    name: Arc<str>,
    version: Option<u32>,
    layer: ReadThroughLayerBuilder<(), RuledCodec<V, C>>,
    keys: PhantomData<fn(K)>,
}

impl<K, V, C> CacheBuilder<K, V, C> {
    delegate_load_options! {
        not_found_ttl(ttl: Duration);
        stale_while_revalidate(stale: Duration);
        stale_if_error(stale: Duration);
        audit(rate: f64);
        shadow(shadow: bool);
    }

    /// As [`ReadThroughLayerBuilder::classify_error`]: what an error of a function says about the key.
    ///
    /// Default: every error is an [`ErrorClass::Failure`].
    pub fn classify_error<E: StdError + 'static>(
        self,
        classify: impl Fn(&E) -> ErrorClass + Send + Sync + 'static,
    ) -> Self {
        Self { layer: self.layer.classify_error(classify), ..self }
    }

    /// As [`ReadThroughLayerBuilder::describe_failures`]: what other processes learn of an error.
    ///
    /// Default: its type, and the kind of an I/O error among its sources.
    pub fn describe_failures<E: StdError + 'static>(
        self,
        describe: impl Fn(&E) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { layer: self.layer.describe_failures(describe), ..self }
    }

    /// Sets a function that classifies values: whether a value is stored and for how long, says
    /// "there is none", is private to its caller, or counts as a failure.
    ///
    /// Default: what the codec says, which is that every value is stored. The [guide](crate::guide::answers) has
    /// examples.
    pub fn classify(self, classify: impl Fn(&V) -> Cacheability + Send + Sync + 'static) -> Self {
        Self { layer: self.layer.map_codec(|rules| rules.classify(classify)), ..self }
    }

    /// As [`ReadThroughLayerBuilder::answer_tags`]: sets a function that gives the tags of a value. For tags
    /// that are known before the load, there is [`Cache::tagged`].
    ///
    /// Default: what the codec says, which is none.
    pub fn answer_tags<T: IntoIterator<Item = Tag>>(
        self,
        tags_of: impl Fn(&V) -> T + Send + Sync + 'static,
    ) -> Self {
        Self { layer: self.layer.map_codec(|rules| rules.tags(tags_of)), ..self }
    }

    /// As [`ReadThroughLayerBuilder::compare_by`], such as by `PartialEq::eq`: whether two values are the same.
    ///
    /// Default: values with other bytes are other values.
    pub fn compare_by(self, is_same: impl Fn(&V, &V) -> bool + Send + Sync + 'static) -> Self {
        Self { layer: self.layer.map_codec(|rules| rules.compare_by(is_same)), ..self }
    }

    /// Sets the version of the values, as a part of each key. Set another one if values change their
    /// meaning or their type: entries of other versions count as missing, and their ttl removes them.
    ///
    /// Tools call the cache `item` of version 2 `item@2`.
    ///
    /// Default: none.
    pub fn version(self, version: u32) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Sets the codec: how a value becomes bytes, and back. What it keeps ([`Kept`](Codec::Kept)) is the
    /// value itself.
    ///
    /// Default: [`Json`], for values that can be cloned and serialised. (Those that cannot be
    /// serialised: [`Cache::in_process`].)
    pub fn codec<D: Codec<V, Kept = V>>(self, codec: D) -> CacheBuilder<K, V, D> {
        self.over(codec)
    }

    fn over<D>(self, codec: D) -> CacheBuilder<K, V, D> {
        let Self { name, version, layer, keys } = self;
        CacheBuilder { name, version, layer: layer.map_codec(|rules| rules.over(codec)), keys }
    }

    /// The cache. Clones of it share its loads; another one that is built over the same store is
    /// like another process.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn build(self) -> Result<Cache<K, V, C>, ConfigError>
    where
        C: Codec<V, Kept = V>,
    {
        let Self { name, version, layer, keys } = self;
        let layer = layer.build()?;
        let name = names::versioned(name, version)?;
        names::register(&name, &layer.core.statistics, &layer.core.policy);
        let client = AdapterCache::new(&layer);
        Ok(Cache { client, name, options: RequestOptions::default(), keys })
    }
}
