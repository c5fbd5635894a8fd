//! `RuledCodec`: a codec, and how the program classifies and tags values.

use bytes::Bytes;

use super::{Cacheability, Codec, EncodeBuffer};
use crate::error::BoxError;
use crate::status::CacheStatus;
use crate::tag::Tag;

/// A codec with functions of the program that [classify](crate::service::ReadThroughLayerBuilder::classify) values and
/// give their [tags](crate::service::ReadThroughLayerBuilder::answer_tags). They are no part of its type.
#[must_use]
pub struct RuledCodec<V, C> {
    codec: C,
    classify: Option<Box<ClassifyValue<V>>>,
    tags: Option<Box<TagsOfValue<V>>>,
    same: Option<Box<CompareValues<V>>>,
}

type ClassifyValue<V> = dyn Fn(&V) -> Cacheability + Send + Sync;

type TagsOfValue<V> = dyn Fn(&V) -> Vec<Tag> + Send + Sync;

type CompareValues<V> = dyn Fn(&V, &V) -> bool + Send + Sync;

impl<V, C> RuledCodec<V, C> {
    /// What the codec does.
    pub fn new(codec: C) -> Self {
        Self { codec, classify: None, tags: None, same: None }
    }

    /// Classifies by a function of the kept value, instead of what the codec says.
    pub fn classify(self, classify: impl Fn(&V) -> Cacheability + Send + Sync + 'static) -> Self {
        Self { classify: Some(Box::new(classify)), ..self }
    }

    /// Adds tags by a function of the kept value.
    pub fn tags<T>(self, tags_of: impl Fn(&V) -> T + Send + Sync + 'static) -> Self
    where
        T: IntoIterator<Item = Tag>,
    {
        let tags_of = move |value: &V| tags_of(value).into_iter().collect();
        Self { tags: Some(Box::new(tags_of)), ..self }
    }

    /// Compares values by a function, for [`Codec::is_same`].
    pub fn compare_by(self, is_same: impl Fn(&V, &V) -> bool + Send + Sync + 'static) -> Self {
        Self { same: Some(Box::new(is_same)), ..self }
    }

    /// The same functions with another codec.
    pub(crate) fn over<D>(self, codec: D) -> RuledCodec<V, D> {
        RuledCodec { codec, classify: self.classify, tags: self.tags, same: self.same }
    }
}

impl<Response, V, C> Codec<Response> for RuledCodec<V, C>
where
    V: Send + Sync + 'static,
    C: Codec<Response, Kept = V>,
{
    type Kept = V;

    fn id(&self) -> u8 {
        self.codec.id()
    }

    fn keep(&self, response: Response) -> V {
        self.codec.keep(response)
    }

    fn restore(&self, kept: &V, status: &CacheStatus) -> Response {
        self.codec.restore(kept, status)
    }

    fn restore_owned(&self, kept: V, status: &CacheStatus) -> Response {
        self.codec.restore_owned(kept, status)
    }

    fn classify(&self, kept: &V) -> Cacheability {
        match &self.classify {
            Some(classify) => classify(kept),
            None => self.codec.classify(kept),
        }
    }

    fn tags(&self, kept: &V) -> Vec<Tag> {
        let mut tags = self.codec.tags(kept);
        tags.extend(self.tags.iter().flat_map(|tags_of| tags_of(kept)));
        tags
    }

    fn encode(&self, kept: &V, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        self.codec.encode(kept, buffer)
    }

    fn decode(&self, bytes: &[u8]) -> Result<V, BoxError> {
        self.codec.decode(bytes)
    }

    fn verify(&self, kept: &V, encoded: &[u8]) -> Result<(), BoxError> {
        self.codec.verify(kept, encoded)
    }

    fn is_same(&self, stored: &V, loaded: &V) -> Option<bool> {
        match &self.same {
            Some(is_same) => Some(is_same(stored, loaded)),
            None => self.codec.is_same(stored, loaded),
        }
    }

    fn complete(&self, kept: V, encoded: &Bytes) -> V {
        self.codec.complete(kept, encoded)
    }

    fn weight(&self, kept: &V, encoded: &Bytes) -> usize {
        self.codec.weight(kept, encoded)
    }
}

crate::debug_fields! { RuledCodec<V, C> where C: Debug => |it| codec = it.codec }
