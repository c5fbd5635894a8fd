//! `HttpHandle`: invalidates stored responses.

use bellwether::{CacheError, Handle};
use http::Uri;

use super::target::Target;

/// A handle to the stored responses, by URI. Clones are handles to the same store.
#[derive(Clone, Debug)]
pub struct HttpHandle(Handle);

impl HttpHandle {
    pub(super) fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// Removes the stored response of a URI, with all of its variants. A request that starts after
    /// this has returned never gets a response that was loaded before, in any process. Returns
    /// whether a response was stored.
    ///
    /// The URI is the one that clients request, with its authority if they send a `Host`. If
    /// middleware above the layer rewrites it, pass [the rewritten one](super#where-to-put-it). The
    /// scheme does not matter: responses by `http` and `https` are both removed, because requests
    /// over HTTP/1.1 do not state their scheme.
    ///
    /// # Errors
    /// If the store fails. The responses may be removed or not: call it again to be sure.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the responses may be removed or not.
    pub async fn invalidate(&self, uri: &Uri) -> Result<bool, CacheError> {
        // A URI that cannot be a target has no stored response.
        let Some(target) = Target::of_uri(uri) else { return Ok(false) };
        let removed = self.0.invalidate_many(target.keys()).await?;
        Ok(removed > 0)
    }
}
