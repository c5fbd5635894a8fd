//! `GrpcHandle`: invalidates stored answers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{FirstError, change};
use bellwether::service::Handle;
use bellwether::stats::CacheStats;
use bellwether::{CacheError, Changed, ConfigError, Key, Tag};
use http::{HeaderMap, HeaderValue};

use super::key::{CallParts, append, keys};
use super::message::PREFIX;
use super::method::{CachedMethod, Methods, metadata_name, no_metadata, normal_authority};

/// A handle to the stored answers. Clones are handles to the same store.
///
/// Made by [`GrpcCacheLayer::handle`](super::GrpcCacheLayer::handle). A process that changes the data
/// and serves none of it can make a layer over the same store with the same methods. Its handle
/// needs no service.
///
/// Each set of encodings that callers accept has an answer of its own. A call stands for all of
/// them, 8 keys.
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
    /// What is wrong with the call is said by [`build`](GrpcCallBuilder::build).
    pub fn call(&self, method: &str, message: impl AsRef<[u8]>) -> GrpcCallBuilder {
        GrpcCallBuilder {
            path: method.to_owned(),
            method: self.methods.get(method).cloned(),
            authority: None,
            message: [&[0; PREFIX], message.as_ref()].concat(),
            metadata: HeaderMap::new(),
            wrong: FirstError::default(),
        }
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
        Ok(self.handle.invalidate_many(call.keys.clone()).await? > 0)
    }

    /// Changes the source, and then [invalidates](Self::invalidate) the answers to a call: see [`Handle::change`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn change<T: Send + 'static, E: Send + 'static>(
        &self,
        call: &GrpcCall,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let (handle, call) = (self.clone(), call.clone());
        change(write, async move { handle.invalidate(&call).await.map(drop) }).await
    }

    /// As [`change`](Self::change), for all answers [with a tag](Self::invalidate_tag).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn change_tag<T: Send + 'static, E: Send + 'static>(
        &self,
        tag: &Tag,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let (handle, tag) = (self.clone(), tag.clone());
        change(write, async move { handle.invalidate_tag(&tag).await }).await
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
        Ok(self.handle.expire_many(call.keys.clone()).await? > 0)
    }

    /// Removes the answers to many calls, each as [`invalidate`](Self::invalidate) does. Returns how
    /// many answers were stored.
    ///
    /// # Errors
    /// An error of the store, after all calls have been tried. It is [pending](CacheError::is_pending) if all
    /// that failed are.
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn invalidate_many(
        &self,
        calls: impl IntoIterator<Item = GrpcCall>,
    ) -> Result<usize, CacheError> {
        self.handle.invalidate_many(calls.into_iter().flat_map(|call| call.keys)).await
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
        self.handle.expire_many(calls.into_iter().flat_map(|call| call.keys)).await
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
}

bellwether::stats_source! { GrpcHandle => CacheStats, |it| it.handle.name() }

/// Calls that have the same answer: of one method, with the same message, and with the same metadata
/// and authority if these are part of the key. Begun by [`GrpcHandle::call`].
#[derive(Clone)]
pub struct GrpcCall {
    method: String,
    keys: Vec<Key>,
}

bellwether::debug_fields! { GrpcCall => |it| method = it.method }

/// The parts of a [`GrpcCall`]. Made by [`GrpcHandle::call`].
#[derive(Clone)]
#[must_use]
pub struct GrpcCallBuilder {
    path: String,
    /// None: it is not cached.
    method: Option<Arc<CachedMethod>>,
    authority: Option<String>,
    message: Vec<u8>,
    metadata: HeaderMap,
    wrong: FirstError,
}

bellwether::debug_fields! { GrpcCallBuilder => |it| method = it.path }

impl GrpcCallBuilder {
    /// Adds metadata of the calls. Metadata that is not part of the key has no effect. The value of
    /// a name that ends in `-bin` is in base64, padded or not.
    pub fn metadata(mut self, name: &str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).map_err(|_| no_metadata(name));
        let mut field = None;
        self.wrong.set(&mut field, metadata_name(name).and_then(|name| Ok(Some((name, value?)))));
        if let Some((name, value)) = field {
            append(&mut self.metadata, &name, &value);
        }
        self
    }

    /// Sets the authority of the calls, as in `shop.example`, without user information. It has no effect
    /// if it is not [part of the key](super::CachedMethod::authority), and is needed if it is.
    pub fn authority(mut self, name: &str) -> Self {
        let reason = "this is not an authority, as in `shop.example`";
        let refused = || ConfigError::Key { given: name.to_owned(), reason };
        let normal = normal_authority(name).map(Some).ok_or_else(refused);
        self.wrong.set(&mut self.authority, normal);
        self
    }

    /// The calls.
    ///
    /// # Errors
    /// If the method is not cached, if a name or a value is not valid for metadata or as an authority,
    /// or if [metadata of the key](super::CachedMethod::metadata) is missing: the first one.
    pub fn build(self) -> Result<GrpcCall, ConfigError> {
        let error = |given: &str, reason| ConfigError::Key { given: given.to_owned(), reason };
        let Self { path, method, authority, message, metadata: headers, wrong } = self;
        let method = method.ok_or_else(|| error(&path, "this method is not cached"))?;
        wrong.result()?;
        if let Some(name) = method.required.iter().find(|name| !headers.contains_key(*name)) {
            let reason = "this metadata is part of the key, and the call lacks it";
            return Err(error(name.as_str(), reason));
        }
        let keys = keys(&CallParts {
            path: &path,
            method: &method,
            authority: authority.as_deref(),
            headers: &headers,
            message: &message,
        });
        Ok(GrpcCall { method: path, keys })
    }
}
