//! `HttpHandle`: what a program does to what is kept.

use bellwether::{CacheError, Handle};
use futures_util::future::try_join_all;
use http::Uri;

use super::target::Target;

/// A handle to what is kept, by URI. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct HttpHandle(Handle);

impl HttpHandle {
    pub(super) fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// Removes what is kept for a URI, all of its variants. No request that starts after this has
    /// returned is answered with a response that was asked for before it, in any process.
    ///
    /// The URI is the one that clients ask for, with its authority if they send a `Host`. If
    /// middleware above the layer writes another one, it is [that one](super#where-to-put-it). By which
    /// scheme it is does not matter: `http` and `https` are both meant, since over HTTP/1.1 a server
    /// is not told which one it is asked by.
    ///
    /// # Errors
    /// If the store fails. It may have been done or not: to be sure, do it again.
    ///
    /// # Cancel safety
    /// Dropped before it has returned, it may have been done or not.
    pub async fn invalidate(&self, uri: &Uri) -> Result<(), CacheError> {
        // A URI that cannot be asked for has nothing kept.
        let Some(target) = Target::of_uri(uri) else { return Ok(()) };
        try_join_all(target.keys().iter().map(|key| self.0.invalidate(key))).await.map(drop)
    }
}
