//! `Classified`: a codec with a function that classifies answers.

use std::fmt;

use bytes::Bytes;

use super::{Cacheability, Codec, EncodeBuffer};
use crate::error::BoxError;
use crate::status::CacheStatus;
use crate::tag::Tag;

/// A codec with a function that classifies answers. Made by
/// [`ReadThroughLayer::classify`](crate::ReadThroughLayer::classify).
#[derive(Clone, Copy)]
pub struct Classified<C, F> {
    codec: C,
    classify: F,
}

impl<C, F> Classified<C, F> {
    /// Encodes and decodes as `codec` does, and classifies by a function of the kept value.
    pub fn new(codec: C, classify: F) -> Self {
        Self { codec, classify }
    }
}

impl<Response, C, F> Codec<Response> for Classified<C, F>
where
    C: Codec<Response>,
    F: Fn(&C::Kept) -> Cacheability + Send + Sync + 'static,
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
        (self.classify)(kept)
    }

    fn tags(&self, kept: &C::Kept) -> Vec<Tag> {
        self.codec.tags(kept)
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

impl<C: fmt::Debug, F> fmt::Debug for Classified<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classified").field("codec", &self.codec).finish_non_exhaustive()
    }
}
