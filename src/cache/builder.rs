//! `CacheBuilder`: the options of a `Cache`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Cache;
use crate::codec::{Cacheability, Codec, Json, RuledCodec};
use crate::delegate_load_options;
use crate::delegate_options;
use crate::error_class::ErrorClass;
use crate::read_through::client::CacheClient;
use crate::read_through::layer::ReadThroughLayer;
use crate::read_through::lookup::RequestOptions;
use crate::tag::Tag;

/// The options of a [`Cache`]. Made by [`Cache::builder`].
///
/// They are the options of a [`ReadThroughLayer`], by the same names and with the same defaults.
pub struct CacheBuilder<V, C = Json> {
    pub(super) name: Arc<str>,
    pub(super) layer: ReadThroughLayer<()>,
    pub(super) codec: RuledCodec<V, C>,
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
