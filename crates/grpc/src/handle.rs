//! `GrpcHandle`: what a program does to the answers that are kept.

use std::sync::Arc;

use bellwether::{CacheError, ConfigError, Handle, Key};
use futures_util::future::try_join_all;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::key::keys;
use super::message::PREFIX;
use super::method::{Methods, no_metadata};

/// A handle to the answers that are kept. Clones are handles to the same.
///
/// Made by [`GrpcCacheLayer::handle`](super::GrpcCacheLayer::handle). Where the data changes in
/// another process than it is served from, a layer over the same store with the same methods makes
/// a handle too, and needs no service.
///
/// Callers may accept other encodings of the answer, each of which is kept by itself; a call
/// is all of them together, 16 keys.
#[derive(Clone, Debug)]
pub struct GrpcHandle {
    handle: Handle,
    methods: Arc<Methods>,
}

impl GrpcHandle {
    pub(super) fn new(handle: Handle, methods: Arc<Methods>) -> Self {
        Self { handle, methods }
    }

    /// Names the calls of a method with this message, as protobuf encodes it.
    ///
    /// Clients in other languages mostly encode a message as this one does, in the order of its
    /// fields; but protobuf does not promise that, and maps have no order. What must be found again
    /// is better asked for by plain fields.
    ///
    /// # Errors
    /// If the method is not one that is cached.
    pub fn call(&self, method: &str, message: impl AsRef<[u8]>) -> Result<GrpcCall, ConfigError> {
        let method = method.to_owned();
        if !self.methods.contains_key(&method) {
            return Err(ConfigError::Key { given: method, reason: "this method is not cached" });
        }
        let message = [&[0; PREFIX], message.as_ref()].concat();
        Ok(GrpcCall { method, message, metadata: HeaderMap::new() })
    }

    /// Removes the answers to a call, with the promise of [`Handle::invalidate`].
    ///
    /// # Errors
    /// If the store fails. It may have been done or not, wholly or in part: to be sure, do it again.
    ///
    /// # Cancel safety
    /// Dropped before it has returned, it may have been done or not, wholly or in part.
    pub async fn invalidate(&self, call: &GrpcCall) -> Result<(), CacheError> {
        let keys = self.keys(call);
        try_join_all(keys.iter().map(|key| self.handle.invalidate(key))).await.map(drop)
    }

    /// Makes the answers to a call stale, as [`Handle::expire`] does.
    ///
    /// # Errors
    /// If the store fails. It may have been done or not, wholly or in part: to be sure, do it again.
    ///
    /// # Cancel safety
    /// Dropped before it has returned, it may have been done or not, wholly or in part.
    pub async fn expire(&self, call: &GrpcCall) -> Result<(), CacheError> {
        let keys = self.keys(call);
        try_join_all(keys.iter().map(|key| self.handle.expire(key))).await.map(drop)
    }

    fn keys(&self, call: &GrpcCall) -> Vec<Key> {
        let GrpcCall { method, message, metadata } = call;
        let known = self.methods.get(method);
        known.map(|cached| keys(method, cached, metadata, message)).unwrap_or_default()
    }
}

/// Calls that are answered alike: of one method, with one message and the same metadata as far as
/// that belongs to the key. Made by [`GrpcHandle::call`].
#[derive(Clone)]
pub struct GrpcCall {
    method: String,
    message: Vec<u8>,
    metadata: HeaderMap,
}

impl GrpcCall {
    /// Adds metadata that the calls come with. What is not part of the key has no effect. Of a name
    /// that ends in `-bin`, the value is as it is sent, in base64.
    ///
    /// # Errors
    /// If there can be no metadata of this name, or none with this value.
    pub fn metadata(mut self, name: &str, value: &str) -> Result<Self, ConfigError> {
        let named = HeaderName::from_bytes(name.as_bytes()).map_err(|_| no_metadata(name))?;
        let value = HeaderValue::from_str(value).map_err(|_| no_metadata(name))?;
        self.metadata.append(named, value);
        Ok(self)
    }
}

/// Shows the method only.
impl std::fmt::Debug for GrpcCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcCall").field("method", &self.method).finish_non_exhaustive()
    }
}
