//! `ValueCodec`: the codec of a cache, and how the program classifies and tags its values.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::codec::{Cacheability, Codec, EncodeBuffer};
use crate::error::BoxError;
use crate::status::CacheStatus;
use crate::tag::Tag;

/// What a [`Cache`](super::Cache) does with its values: a codec, and a function that classifies. So
/// the function is no part of the cache's type.
pub struct ValueCodec<V, C> {
    codec: C,
    classify: Option<Arc<ClassifyValue<V>>>,
    tags: Option<Arc<TagsOfValue<V>>>,
}

/// A function of the program that classifies values.
pub(super) type ClassifyValue<V> = dyn Fn(&V) -> Cacheability + Send + Sync;

/// A function of the program that gives the tags of values.
pub(super) type TagsOfValue<V> = dyn Fn(&V) -> Vec<Tag> + Send + Sync;

impl<V, C> ValueCodec<V, C> {
    pub(super) fn new(
        codec: C,
        classify: Option<Arc<ClassifyValue<V>>>,
        tags: Option<Arc<TagsOfValue<V>>>,
    ) -> Self {
        Self { codec, classify, tags }
    }
}

impl<V, C> Codec<V> for ValueCodec<V, C>
where
    V: Send + Sync + 'static,
    C: Codec<V, Kept = V>,
{
    type Kept = V;

    fn id(&self) -> u8 {
        self.codec.id()
    }

    fn keep(&self, value: V) -> V {
        self.codec.keep(value)
    }

    fn restore(&self, kept: &V, status: &CacheStatus) -> V {
        self.codec.restore(kept, status)
    }

    fn restore_owned(&self, kept: V, status: &CacheStatus) -> V {
        self.codec.restore_owned(kept, status)
    }

    fn classify(&self, kept: &V) -> Cacheability {
        match &self.classify {
            Some(classify) => classify(kept),
            None => self.codec.classify(kept),
        }
    }

    fn tags(&self, kept: &V) -> Vec<Tag> {
        match &self.tags {
            Some(tags) => tags(kept),
            None => self.codec.tags(kept),
        }
    }

    fn encode(&self, kept: &V, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        self.codec.encode(kept, buffer)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, BoxError> {
        self.codec.decode(bytes)
    }

    fn settle(&self, kept: V, encoded: &Bytes) -> V {
        self.codec.settle(kept, encoded)
    }

    fn weight(&self, kept: &V, encoded: &Bytes) -> usize {
        self.codec.weight(kept, encoded)
    }
}

impl<V, C: fmt::Debug> fmt::Debug for ValueCodec<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueCodec").field("codec", &self.codec).finish_non_exhaustive()
    }
}
