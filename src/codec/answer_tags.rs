//! `AnswerTags`: a codec with a function that gives the tags of answers.

use std::fmt;

use bytes::Bytes;

use super::{Cacheability, Codec, EncodeBuffer};
use crate::error::BoxError;
use crate::status::CacheStatus;
use crate::tag::Tag;

/// A codec with a function that gives the tags of answers. Made by
/// [`ReadThroughLayer::answer_tags`](crate::ReadThroughLayer::answer_tags).
#[derive(Clone, Copy)]
pub struct AnswerTags<C, F> {
    codec: C,
    tags: F,
}

impl<C, F> AnswerTags<C, F> {
    /// Encodes, decodes and classifies as `codec` does, and adds tags by a function of the kept
    /// value.
    pub fn new(codec: C, tags: F) -> Self {
        Self { codec, tags }
    }
}

impl<Response, C, F, T> Codec<Response> for AnswerTags<C, F>
where
    C: Codec<Response>,
    F: Fn(&C::Kept) -> T + Send + Sync + 'static,
    T: IntoIterator<Item = Tag>,
{
    type Kept = C::Kept;

    fn id(&self) -> u8 {
        self.codec.id()
    }

    fn keep(&self, response: Response) -> C::Kept {
        self.codec.keep(response)
    }

    fn restore(&self, kept: &C::Kept, status: &CacheStatus) -> Response {
        self.codec.restore(kept, status)
    }

    fn restore_owned(&self, kept: C::Kept, status: &CacheStatus) -> Response {
        self.codec.restore_owned(kept, status)
    }

    fn classify(&self, kept: &C::Kept) -> Cacheability {
        self.codec.classify(kept)
    }

    fn tags(&self, kept: &C::Kept) -> Vec<Tag> {
        let mut tags = self.codec.tags(kept);
        tags.extend((self.tags)(kept));
        tags
    }

    fn encode(&self, kept: &C::Kept, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        self.codec.encode(kept, buffer)
    }

    fn decode(&self, bytes: &[u8]) -> Result<C::Kept, BoxError> {
        self.codec.decode(bytes)
    }

    fn settle(&self, kept: C::Kept, encoded: &Bytes) -> C::Kept {
        self.codec.settle(kept, encoded)
    }

    fn weight(&self, kept: &C::Kept, encoded: &Bytes) -> usize {
        self.codec.weight(kept, encoded)
    }
}

impl<C: fmt::Debug, F> fmt::Debug for AnswerTags<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerTags").field("codec", &self.codec).finish_non_exhaustive()
    }
}
