//! `GrpcHandle`: invalidates stored answers.

use std::sync::Arc;
use std::time::Duration;

use bellwether::service::Handle;
use bellwether::stats::CacheStats;
use bellwether::{CacheError, ConfigError, Key, Tag};
use http::{HeaderMap, HeaderValue};

use super::key::{CallParts, keys};
use super::message::PREFIX;
use super::method::{Methods, metadata_name, no_metadata, normal_authority};

/// A handle to the stored answers. Clones are handles to the same store.
///
/// Made by [`GrpcCacheLayer::handle`](super::GrpcCacheLayer::handle). A process that changes the data
/// and serves none of it can make a layer over the same store with the same methods. Its handle
/// needs no service.
///
/// Each set of encodings that callers accept has an answer of its own. A call stands for all of
/// them, 16 keys.
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
    /// Clients in other languages usually encode fields in the same order, but protobuf does not
    /// promise that, and maps have no order. So use plain fields in requests whose answers you
    /// invalidate.
    ///
    /// # Errors
    /// If the method is not cached.
    pub fn call(&self, method: &str, message: impl AsRef<[u8]>) -> Result<GrpcCall, ConfigError> {
        let method = method.to_owned();
        if !self.methods.contains_key(&method) {
            return Err(ConfigError::Key { given: method, reason: "this method is not cached" });
        }
        let message = [&[0; PREFIX], message.as_ref()].concat();
        Ok(GrpcCall { method, authority: None, message, metadata: HeaderMap::new() })
    }

    /// Removes the answers to a call, with the guarantee of [`Handle::invalidate`]. Returns whether
    /// an answer was stored.
    ///
    /// # Errors
    /// If the store fails. All, some or none of the answers may have changed: call it again to be
    /// sure.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, all, some or none of the answers may have changed.
    pub async fn invalidate(&self, call: &GrpcCall) -> Result<bool, CacheError> {
        let keys = self.keys(call);
        Ok(self.handle.invalidate_many(keys).await? > 0)
    }

    /// Makes the answers to a call stale, as [`Handle::expire`] does. Returns whether an answer was
    /// stored.
    ///
    /// # Errors
    /// If the store fails. All, some or none of the answers may have changed: call it again to be
    /// sure.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, all, some or none of the answers may have changed.
    pub async fn expire(&self, call: &GrpcCall) -> Result<bool, CacheError> {
        let keys = self.keys(call);
        Ok(self.handle.expire_many(keys).await? > 0)
    }

    /// Removes the answers to many calls, each as [`invalidate`](Self::invalidate) does. Returns how
    /// many answers were stored.
    ///
    /// # Errors
    /// An error of the store, after all calls have been tried. It is [kept](CacheError::is_kept) if all
    /// that failed are.
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn invalidate_many(
        &self,
        calls: impl IntoIterator<Item = GrpcCall>,
    ) -> Result<usize, CacheError> {
        let keys: Vec<_> = calls.into_iter().flat_map(|call| self.keys(&call)).collect();
        self.handle.invalidate_many(keys).await
    }

    /// Makes the answers to many calls stale, each as [`expire`](Self::expire) does. Returns how many
    /// answers were stored.
    ///
    /// # Errors
    /// As [`invalidate_many`](Self::invalidate_many).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn expire_many(
        &self,
        calls: impl IntoIterator<Item = GrpcCall>,
    ) -> Result<usize, CacheError> {
        let keys: Vec<_> = calls.into_iter().flat_map(|call| self.keys(&call)).collect();
        self.handle.expire_many(keys).await
    }

    /// Removes all answers with a [tag](super::CachedMethod::tags), with the guarantee of
    /// [`Handle::invalidate_tag`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate_tag(&self, tag: &Tag) -> Result<(), CacheError> {
        self.handle.invalidate_tag(tag).await
    }

    /// Makes all answers with a tag stale, over the time `spread`, as [`Handle::expire_tag`] does.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire_tag(&self, tag: &Tag, spread: Duration) -> Result<(), CacheError> {
        self.handle.expire_tag(tag, spread).await
    }

    /// Removes all answers of [clearable](super::GrpcCacheLayerBuilder::clearable) layers over this store,
    /// as [`Handle::clear`] does.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn clear(&self) -> Result<(), CacheError> {
        self.handle.clear().await
    }

    /// What the services and handles of this layer have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.handle.stats()
    }

    fn keys(&self, call: &GrpcCall) -> Vec<Key> {
        let GrpcCall { method: path, authority, message, metadata: headers } = call;
        let authority = authority.as_deref();
        let keys_by = |method| keys(&CallParts { path, method, authority, headers, message });
        self.methods.get(path).map(|method| keys_by(method)).unwrap_or_default()
    }
}

/// Calls that have the same answer: of one method, with the same message, and with the same metadata
/// and authority if these are part of the key. Made by [`GrpcHandle::call`].
#[derive(Clone)]
pub struct GrpcCall {
    method: String,
    authority: Option<String>,
    message: Vec<u8>,
    metadata: HeaderMap,
}

impl GrpcCall {
    /// Adds metadata of the calls. Metadata that is not part of the key has no effect. The value of
    /// a name that ends in `-bin` is in base64, as it is sent.
    ///
    /// # Errors
    /// If the name or the value is not valid for metadata.
    pub fn metadata(mut self, name: &str, value: &str) -> Result<Self, ConfigError> {
        let named = metadata_name(name)?;
        let value = HeaderValue::from_str(value).map_err(|_| no_metadata(name))?;
        self.metadata.append(named, value);
        Ok(self)
    }

    /// Sets the authority of the calls, as in `shop.example`. It has no effect if it is not
    /// [part of the key](super::CachedMethod::authority), and is needed if it is.
    ///
    /// # Errors
    /// If this is not an authority, or has user information.
    pub fn authority(mut self, name: &str) -> Result<Self, ConfigError> {
        let normal = normal_authority(name);
        let reason = "this is not an authority, as in `shop.example`";
        let refused = || ConfigError::Key { given: name.to_owned(), reason };
        self.authority = Some(normal.ok_or_else(refused)?);
        Ok(self)
    }
}

/// Shows the method only.
impl std::fmt::Debug for GrpcCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcCall").field("method", &self.method).finish_non_exhaustive()
    }
}
