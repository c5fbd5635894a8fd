//! `CacheBuilder`: the options of a `Cache`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Cache;
use crate::codec::{Cacheability, Codec, InProcess, Json, RuledCodec};
use crate::delegate_load_options;
use crate::delegate_options;
use crate::error_class::ErrorClass;
use crate::read_through::client::CacheClient;
use crate::read_through::layer::ReadThroughLayer;
use crate::read_through::lookup::RequestOptions;
use crate::store::{InProcessStore, Store};
use crate::tag::Tag;

/// The options of a [`Cache`]. Made by [`Cache::builder`].
///
/// They are the options of a [`ReadThroughLayer`], by the same names and with the same defaults.
pub struct CacheBuilder<V, C = Json> {
    name: Arc<str>,
    layer: ReadThroughLayer<()>,
    codec: RuledCodec<V, C>,
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
