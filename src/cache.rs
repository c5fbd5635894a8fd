//! `Cache`: values by key, loaded by a function where they are missing.
//!
//! A [`Cache`] is what most programs need: a key, a function that loads, and an answer. It is built
//! on the flights, leases and policies of a [`ReadThroughLayer`](crate::ReadThroughLayer), so
//! everything that is said about requests of a layer holds for its calls.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::codec::{Cacheability, Codec, InProcess, Json, RuledCodec};
use crate::delegate_load_options;
use crate::delegate_options;
use crate::error::{BoxError, CacheError};
use crate::error_class::ErrorClass;
use crate::key::{Key, KeyPart};
use crate::read_through::client::CacheClient;
use crate::read_through::future::ResponseFuture;
use crate::read_through::handle::Handle;
use crate::read_through::layer::ReadThroughLayer;
use crate::read_through::loader_fn::{RunRequest, loader_fn};
use crate::read_through::lookup::RequestOptions;
use crate::read_through::many::{BatchFuture, BatchResponse};
use crate::stats::CacheStats;
use crate::store::{InProcessStore, Store};
use crate::tag::{Tag, Tags, TooManyTags};

/// Values of one type, each under a key, loaded by a function where they are missing.
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
/// let items: Cache<String> = Cache::builder("item", store).ttl(Duration::from_secs(60)).build();
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
/// type of a closure, so it fits a struct field, a `static` and the `State` of axum as `Cache<Item>`.
///
/// # Keys
/// A key is the name of the cache and one part: a number, a text, or a tuple of parts such as
/// `("berlin", 42)`. [`key`](Self::key) shows it as a [`Key`].
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
pub struct Cache<V, C = Json> {
    client: CacheClient<RuledCodec<V, C>>,
    name: Arc<str>,
    options: RequestOptions,
}

impl<V> Cache<V> {
    /// Begins a cache over a store. Its keys are of this kind: see [`Key::of`](crate::Key::of).
    ///
    /// Set [`ttl`](CacheBuilder::ttl): without it, nothing is stored, and concurrent callers share
    /// a load.
    pub fn builder<S: Store>(name: &str, store: S) -> CacheBuilder<V> {
        let layer = ReadThroughLayer::without_keys(store).name(name);
        CacheBuilder { name: name.into(), layer, codec: RuledCodec::new(Json) }
    }
}

impl<V> Cache<V, InProcess> {
    /// Begins a cache of values that are never encoded, over a store of this process alone. They are
    /// any `Clone` values, such as an `Arc`, and need nothing of serde. As [`builder`](Self::builder)
    /// otherwise.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use bellwether::{Cache, InProcess, MemoryStore};
    ///
    /// /// It could not be serialised.
    /// struct Template(Box<dyn Fn(&str) -> String + Send + Sync>);
    ///
    /// struct Site {
    ///     templates: Cache<Arc<Template>, InProcess>,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new(100);
    /// let templates = Cache::in_process("template", store).ttl(Duration::from_secs(60)).build();
    /// let site = Site { templates };
    ///
    /// let compile = async || Ok::<_, std::io::Error>(Arc::new(Template(Box::new(|it| format!("<{it}>")))));
    /// let template = site.templates.get_or_load("home", compile).await?;
    /// assert_eq!((template.0)("p"), "<p>");
    /// let again = site.templates.get("home").await?.expect("it is stored");
    /// assert!(Arc::ptr_eq(&template, &again));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With a store that other processes share, it does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use bellwether::{Cache, InProcess};
    /// # use bellwether_redis::RedisStore;
    /// # fn templates(redis: RedisStore) {
    /// let templates: Cache<fn(), InProcess> = Cache::in_process("template", redis).build();
    /// # }
    /// ```
    pub fn in_process<S: InProcessStore>(name: &str, store: S) -> CacheBuilder<V, InProcess> {
        let CacheBuilder { name, layer, codec } = Cache::<V>::builder(name, store);
        CacheBuilder { name, layer, codec: codec.over(InProcess) }
    }
}

impl<V, C> Cache<V, C> {
    /// The same cache, whose calls need their answers by `deadline`: see
    /// [`Lookup::deadline`](crate::Lookup::deadline).
    #[must_use]
    pub fn deadline(&self, deadline: Instant) -> Self {
        Self { options: self.options.clone().deadline(deadline), ..self.clone() }
    }

    /// The same cache, whose calls accept no stored value: they load, or wait for a load under way. See
    /// [`Lookup::force_refresh`](crate::Lookup::force_refresh).
    #[must_use]
    pub fn force_refresh(&self) -> Self {
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
    /// let stock: Cache<u64> =
    ///     Cache::builder("stock", MemoryStore::new(10)).ttl(Duration::from_secs(60)).build();
    /// let berlin = stock.tagged([Tag::of("warehouse").with("berlin")])?;
    /// let load = async || Ok::<_, Infallible>(7);
    /// assert_eq!(berlin.get_or_load(("berlin", 42), load).await?, 7);
    ///
    /// stock.handle().invalidate_tag(&Tag::of("warehouse").with("berlin")).await?;
    /// assert_eq!(stock.get(("berlin", 42)).await?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there are more than [`Tags::MOST`].
    pub fn tagged(&self, tags: impl IntoIterator<Item = Tag>) -> Result<Self, TooManyTags> {
        Ok(Self { options: self.options.clone().tagged(Tags::new(tags)?), ..self.clone() })
    }

    /// The key of a value: the name of the cache, and this part.
    ///
    /// ```
    /// # use bellwether::{Cache, Key, MemoryStore};
    /// let stock: Cache<u64> = Cache::builder("stock", MemoryStore::new(10)).build();
    /// assert_eq!(stock.key(("berlin", 42)), Key::of("stock").with("berlin").with(42));
    /// ```
    #[inline]
    pub fn key(&self, part: impl KeyPart) -> Key {
        Key::of(&self.name).with(part)
    }

    /// A handle to the stored values, by their whole keys.
    pub fn handle(&self) -> Handle {
        self.client.handle()
    }

    /// Removes the value of a key. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Handle::invalidate`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate(&self, part: impl KeyPart) -> Result<bool, CacheError> {
        let key = self.key(part);
        self.handle().invalidate(&key).await
    }

    /// Removes the values of many keys at once. Returns how many there were.
    ///
    /// # Errors
    /// As [`Handle::invalidate_many`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate_many<P: KeyPart>(
        &self,
        parts: impl IntoIterator<Item = P>,
    ) -> Result<usize, CacheError> {
        let keys: Vec<_> = parts.into_iter().map(|part| self.key(part)).collect();
        self.handle().invalidate_many(keys).await
    }

    /// Makes the value of a key stale, as if its ttl had passed. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Handle::expire`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire(&self, part: impl KeyPart) -> Result<bool, CacheError> {
        let key = self.key(part);
        self.handle().expire(&key).await
    }

    /// Makes the values of many keys stale at once. Returns how many there were.
    ///
    /// # Errors
    /// As [`Handle::expire_many`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire_many<P: KeyPart>(
        &self,
        parts: impl IntoIterator<Item = P>,
    ) -> Result<usize, CacheError> {
        let keys: Vec<_> = parts.into_iter().map(|part| self.key(part)).collect();
        self.handle().expire_many(keys).await
    }

    /// What this cache and its clones have done in this process. In [metrics](crate::stats) it has
    /// the name that it was built with.
    pub fn stats(&self) -> CacheStats {
        self.client.stats()
    }

    /// How many keys this process looks up or loads right now.
    pub fn in_flight(&self) -> usize {
        self.client.in_flight()
    }
}

/// The bounds stand at each call, so that the compiler says what a value lacks.
impl<V, C> Cache<V, C> {
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
    /// opened the load. Other task-locals of that caller are not there: capture what the function
    /// needs of them.
    ///
    /// The future gives the value.
    /// [`with_status`](ResponseFuture::with_status) makes it give the
    /// [`CacheStatus`](crate::CacheStatus) too:
    ///
    /// ```
    /// use bellwether::{Cache, CacheStatus, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let minute = std::time::Duration::from_secs(60);
    /// let names: Cache<String> = Cache::builder("name", MemoryStore::new(100)).ttl(minute).build();
    /// let load = async || Ok::<_, std::io::Error>("Ada".to_owned());
    ///
    /// let (answer, status) = names.get_or_load(7, load).with_status().await;
    /// assert_eq!(answer.unwrap(), "Ada");
    /// assert_eq!(status, CacheStatus::Led { stored: true });
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the function, or why the cache has no answer.
    ///
    /// # Cancel safety
    /// As [`ResponseFuture`]: dropping it takes nothing from other callers.
    #[inline]
    pub fn get_or_load<F, L, E>(
        &self,
        part: impl KeyPart,
        load: F,
    ) -> ResponseFuture<RunRequest, F, RuledCodec<V, C>>
    where
        F: FnOnce() -> L + Send + 'static,
        L: Future<Output = Result<V, E>> + Send,
        E: Into<BoxError> + Send + Sync + 'static,
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        self.client.request(self.key(part), self.options.clone(), &RunRequest, load)
    }

    /// The values of many keys, in their order. One call of `load` loads those that are missing.
    ///
    /// Each key behaves as it would alone: see [`load_many`](crate::ReadThrough::load_many). `load`
    /// gets the missing parts and returns [`BatchResponse`]: a `Vec` of results in their order, or, for a
    /// `Cache<Option<T>>`, a map. It may be called again, for keys that have to be loaded later, so
    /// it is cloned. One call gets at most 1,000 keys.
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
    /// let items: Cache<Option<String>> =
    ///     Cache::builder("item", MemoryStore::new(10_000)).ttl(minute).build();
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
    pub fn get_or_load_many<P, F, L, A, E>(
        &self,
        parts: impl IntoIterator<Item = P>,
        load: F,
    ) -> BatchFuture<V, E>
    where
        P: KeyPart + Clone + Send + 'static,
        F: FnOnce(Vec<P>) -> L + Clone + Send + 'static,
        L: Future<Output = Result<A, E>> + Send + 'static,
        A: BatchResponse<P, E, Answer = V>,
        E: Into<BoxError> + Send + Sync + 'static,
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        let lookup_of = |part: &P| self.options.clone().lookup(self.key(part));
        self.client.request_many(loader_fn(load), parts.into_iter().collect(), lookup_of)
    }

    /// The value of a key if it is stored and fresh. Loads nothing, and waits for no load.
    ///
    /// # Errors
    /// If the store fails. A value that this process has is given all the same.
    ///
    /// # Cancel safety
    /// It changes nothing, so it may be dropped at any time.
    pub async fn get(&self, part: impl KeyPart) -> Result<Option<V>, CacheError>
    where
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        let key = self.key(part);
        self.client.get(&key, &self.options.tags).await
    }

    /// Stores a value that was just written to the source, so that the next caller need not load
    /// it. Returns whether it was stored.
    ///
    /// Call it after the source has changed, as [`invalidate`](Self::invalidate). When it has
    /// returned `Ok`, no older value is served any more, whether this one was stored or not: the
    /// value of a load that began before is not stored, and an invalidation that comes later
    /// removes this value. It is not stored if it cannot be (its
    /// [`Cacheability`](crate::Cacheability) forbids it, or it is too large), or if another `put`
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
    pub async fn put(&self, part: impl KeyPart, value: V) -> Result<bool, CacheError>
    where
        V: Send + Sync + 'static,
        C: Codec<V, Kept = V>,
    {
        let key = self.key(part);
        self.client.put(key, &self.options.tags, value).await
    }
}

impl<V, C> Clone for Cache<V, C> {
    fn clone(&self) -> Self {
        let Self { client, name, options } = self;
        Self { client: client.clone(), name: Arc::clone(name), options: options.clone() }
    }
}

impl<V, C: fmt::Debug> fmt::Debug for Cache<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.name).field("client", &self.client).finish()
    }
}

/// The options of a [`Cache`]. Made by [`Cache::builder`].
///
/// They are the options of a [`ReadThroughLayer`], by the same names and with the same defaults.
pub struct CacheBuilder<V, C = Json> {
    name: Arc<str>,
    layer: ReadThroughLayer<()>,
    codec: RuledCodec<V, C>,
}

impl<V, C> CacheBuilder<V, C> {
    delegate_options! {
        ttl(ttl: Duration);
        not_found_ttl(ttl: Duration);
        stale_while_revalidate(stale: Duration);
        stale_if_error(stale: Duration);
    }

    delegate_load_options!();

    /// As [`ReadThroughLayer::classify_error`]: what an error of a function says about the key.
    ///
    /// Default: every error is an [`ErrorClass::Failure`].
    #[must_use]
    pub fn classify_error<E, F>(mut self, classify: F) -> Self
    where
        E: 'static,
        F: Fn(&E) -> ErrorClass + Send + Sync + 'static,
    {
        self.layer = self.layer.classify_error(classify);
        self
    }

    /// As [`ReadThroughLayer::describe_failures`]: what other processes learn of an error.
    ///
    /// Default: only that there was one.
    #[must_use]
    pub fn describe_failures<E, F>(mut self, describe: F) -> Self
    where
        E: 'static,
        F: Fn(&E) -> String + Send + Sync + 'static,
    {
        self.layer = self.layer.describe_failures(describe);
        self
    }

    /// Sets a function that classifies values: whether a value is stored and for how long, says
    /// "there is none", is private to its caller, or counts as a failure.
    ///
    /// Default: what the codec says, which is that every value is stored.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use bellwether::{Cache, Cacheability, MemoryStore};
    /// let items = Cache::<Option<String>>::builder("item", MemoryStore::new(1_000))
    ///     .ttl(Duration::from_secs(60))
    ///     .not_found_ttl(Duration::from_secs(5))
    ///     .classify(|item| match item {
    ///         Some(_) => Cacheability::Keep,
    ///         None => Cacheability::NotFound,
    ///     })
    ///     .build();
    /// # let _: Cache<Option<String>> = items;
    /// ```
    #[must_use]
    pub fn classify<F>(mut self, classify: F) -> Self
    where
        F: Fn(&V) -> Cacheability + Send + Sync + 'static,
    {
        self.codec = self.codec.classify(classify);
        self
    }

    /// As [`ReadThroughLayer::answer_tags`]: sets a function that gives the tags of a value. For tags
    /// that are known before the load, there is [`Cache::tagged`].
    ///
    /// Default: what the codec says, which is none.
    #[must_use]
    pub fn answer_tags<F, T>(mut self, tags_of: F) -> Self
    where
        F: Fn(&V) -> T + Send + Sync + 'static,
        T: IntoIterator<Item = Tag>,
    {
        self.codec = self.codec.tags(tags_of);
        self
    }

    /// Sets the codec: how a value becomes bytes, and back. It keeps values as they are.
    ///
    /// Default: [`Json`], for values that can be cloned and serialised. (Those that cannot be
    /// serialised: [`Cache::in_process`].)
    #[must_use]
    pub fn codec<D>(self, codec: D) -> CacheBuilder<V, D>
    where
        D: Codec<V, Kept = V>,
    {
        let Self { name, layer, codec: rules } = self;
        CacheBuilder { name, layer, codec: rules.over(codec) }
    }

    /// The cache. Clones of it share its loads; another one that is built over the same store is
    /// like another process.
    pub fn build(self) -> Cache<V, C>
    where
        C: Codec<V, Kept = V>,
    {
        let Self { name, layer, codec } = self;
        let layer = layer.codec(codec);
        Cache { client: CacheClient::new(&layer), name, options: RequestOptions::default() }
    }
}

impl<V, C: fmt::Debug> fmt::Debug for CacheBuilder<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("name", &self.name)
            .field("layer", &self.layer)
            .field("codec", &self.codec)
            .finish_non_exhaustive()
    }
}
