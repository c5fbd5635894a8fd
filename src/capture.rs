//! Captures: turning an answer into something that can be kept and given out many times.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use tower::BoxError;

use crate::status::CacheStatus;

/// Turns an answer of the loader into something that can be kept and given out many times.
///
/// What is [kept](Capture::Kept) is shared: those who waited for one load are given copies made
/// of one value by [`restore`](Capture::restore), and a store within the process keeps that very
/// value, so that a hit there decodes nothing.
pub trait Capture<Response>: Send + Sync + 'static {
    /// What is kept of an answer.
    type Kept: Send + Sync + 'static;

    /// The number of the encoding, stored beside the bytes: an entry of another encoding is a
    /// miss. 1 to 63 are this crate's, 64 to 255 are yours.
    fn codec(&self) -> u8;

    /// Takes from an answer what is to be kept.
    fn keep(&self, response: Response) -> Self::Kept;

    /// Makes an answer of what was kept.
    fn restore(&self, kept: &Self::Kept, status: &CacheStatus) -> Response;

    /// Makes an answer of what nobody else has, as [`restore`](Capture::restore) would. Provided by
    /// that; worth writing where it saves a copy.
    fn give_out(&self, kept: Self::Kept, status: &CacheStatus) -> Response {
        self.restore(&kept, status)
    }

    /// Writes what is kept, for a store outside of the process.
    ///
    /// # Errors
    /// If this value cannot be written; it is then given to who waits for it, but not stored.
    fn encode(&self, kept: &Self::Kept) -> Result<Bytes, BoxError>;

    /// Reads what `encode` wrote.
    ///
    /// # Errors
    /// If the bytes are not what it wrote: that entry counts as a miss.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Kept, BoxError>;
}

/// Keeps any `Clone + Serialize + DeserializeOwned` answer, as JSON. The default.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Json;

impl<Response> Capture<Response> for Json
where
    Response: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Kept = Response;

    fn codec(&self) -> u8 {
        1
    }

    fn keep(&self, response: Response) -> Response {
        response
    }

    fn restore(&self, kept: &Response, _: &CacheStatus) -> Response {
        kept.clone()
    }

    fn give_out(&self, kept: Response, _: &CacheStatus) -> Response {
        kept
    }

    fn encode(&self, kept: &Response) -> Result<Bytes, BoxError> {
        Ok(serde_json::to_vec(kept)?.into())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}
