//! `HttpHandle`: invalidates stored responses.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use bellwether::adapter::{change, result_of_all};
use bellwether::service::Handle;
use bellwether::stats::CacheStats;
use bellwether::{CacheError, Changed, Key, Tag};
use futures_util::future::join_all;
use http::Uri;

use super::target::Target;

/// A handle to the stored responses: by URI, by group and by surrogate key. Clones are handles to the
/// same store.
///
/// Its operations have the guarantees of a [`Handle`].
#[derive(Clone, Debug)]
pub struct HttpHandle {
    entries: Handle,
}

impl HttpHandle {
    pub(super) fn new(entries: Handle) -> Self {
        Self { entries }
    }

    /// Removes the stored response of a URI, with all of its variants. A request that starts after
    /// this has returned never gets a response that was loaded before, in any process. Returns
    /// whether a response was stored.
    ///
    /// The URI is the one that clients request, with its authority if they send a `Host`. If
    /// middleware above the layer rewrites it, pass [the rewritten one](mod@super::guide#where-to-put-it). The
    /// scheme does not matter: responses by `http` and `https` are both removed, because requests
    /// over HTTP/1.1 do not state their scheme.
    ///
    /// # Errors
    /// If the store fails. The responses may be removed or not: call it again to be sure.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the responses may be removed or not.
    pub async fn invalidate(&self, uri: &Uri) -> Result<bool, CacheError> {
        Ok(self.entries.invalidate_many(keys_of(uri)).await? > 0)
    }

    /// Removes the stored responses of many URIs, each as [`invalidate`](Self::invalidate) does.
    /// Returns how many there were. A URI has two if it was requested by `http` and by `https`.
    ///
    /// # Errors
    /// An error of the store, after all URIs have been tried. It is [pending](CacheError::is_pending) if all
    /// that failed are.
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn invalidate_many(
        &self,
        uris: impl IntoIterator<Item = Uri>,
    ) -> Result<usize, CacheError> {
        let keys = uris.into_iter().flat_map(|uri| keys_of(&uri));
        self.entries.invalidate_many(keys).await
    }

    /// Changes the source, and then [invalidates](Self::invalidate) the responses of a URI: see [`Handle::change`].
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
        uri: &Uri,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let (handle, uri) = (self.clone(), uri.clone());
        change(write, async move { handle.invalidate(&uri).await.map(drop) }).await
    }

    /// As [`change`](Self::change), for all responses [with a tag](Self::invalidate_tag).
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
        key: &str,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let (handle, key) = (self.clone(), key.to_owned());
        change(write, async move { handle.invalidate_tag(&key).await }).await
    }

    /// Makes the stored response of a URI stale, with all of its variants, as if its freshness lifetime
    /// had passed. Within its stale window callers get it while it is loaded again, and the origin may
    /// confirm it by its validator. Without a window it is removed. Returns whether a response was
    /// stored.
    ///
    /// The stale windows of variants begin now, by the clock of the store. A response whose load is under way
    /// is not stored. If the store fails during the call, the variants may be removed instead. If the last loads
    /// of a variant have failed, its cooldown goes on.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn expire(&self, uri: &Uri) -> Result<bool, CacheError> {
        Ok(self.entries.expire_many(keys_of(uri)).await? > 0)
    }

    /// Makes the stored responses of many URIs stale, each as [`expire`](Self::expire) does. Returns
    /// how many there were. A URI has two if it was requested by `http` and by `https`.
    ///
    /// # Errors
    /// As [`invalidate_many`](Self::invalidate_many).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn expire_many(
        &self,
        uris: impl IntoIterator<Item = Uri>,
    ) -> Result<usize, CacheError> {
        let keys = uris.into_iter().flat_map(|uri| keys_of(&uri));
        self.entries.expire_many(keys).await
    }

    /// Removes all stored responses of a group (`Cache-Groups`, RFC 9875), with the guarantee of
    /// [`Handle::invalidate_tag`] for tags of the answer. However many they are, this is two or three
    /// small writes.
    ///
    /// A group belongs to an origin, which is that of this URI: its scheme, host and port. Responses
    /// of the same group in another origin stay. Responses to requests over HTTP/1.1, which do not
    /// state their scheme, are of either scheme. So are those of an `origin` without a scheme, such
    /// as `shop.example`.
    ///
    /// # Errors
    /// If the store fails, or has no tags. Call it again to be sure. The error is
    /// [pending](CacheError::is_pending) only if those of all writes that failed are.
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn invalidate_group(&self, origin: &Uri, group: &str) -> Result<(), CacheError> {
        let tags = Self::group_tags(origin, group);
        result_of_all(join_all(tags.iter().map(|tag| self.entries.invalidate_tag(tag))).await)
    }

    /// Makes all stored responses of a [group](Self::invalidate_group) stale, as
    /// [`Handle::expire_tag`] does: within its stale window, each is served while it is loaded again.
    /// They become stale one after the other over the time `spread`, as there.
    ///
    /// # Errors
    /// As [`invalidate_group`](Self::invalidate_group).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn expire_group(
        &self,
        origin: &Uri,
        group: &str,
        spread: Duration,
    ) -> Result<(), CacheError> {
        let tags = Self::group_tags(origin, group);
        let expired = |tag| self.entries.expire_tag(tag, spread);
        result_of_all(join_all(tags.iter().map(expired)).await)
    }

    /// The tag of the responses with a [surrogate key](super::HttpCacheLayerBuilder::surrogate_keys), for a
    /// [`Handle`](bellwether::service::Handle). [`invalidate_tag`](Self::invalidate_tag) of this type takes
    /// the key itself.
    pub fn surrogate_tag(key: impl AsRef<[u8]>) -> Tag {
        Tag::of("http-surrogate-key").with(key.as_ref())
    }

    /// The tags of a group (RFC 9875) of the origin of a URI, for a
    /// [`Handle`](bellwether::service::Handle): invalidate all of them.
    /// [`invalidate_group`](Self::invalidate_group) of this type takes the origin and the group.
    ///
    /// They are two or three, because requests over HTTP/1.1 do not state their scheme. A URI with user
    /// information has none.
    pub fn group_tags(origin: &Uri, group: &str) -> Vec<Tag> {
        let target = Target::of_uri(origin);
        target.map(|target| target.groups(group)).unwrap_or_default()
    }

    /// Removes all stored responses with a [surrogate key](super::HttpCacheLayerBuilder::surrogate_keys), of
    /// all origins, as [`Handle::invalidate_tag`] does.
    ///
    /// # Errors
    /// As [`invalidate_group`](Self::invalidate_group).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn invalidate_tag(&self, key: &str) -> Result<(), CacheError> {
        self.entries.invalidate_tag(&Self::surrogate_tag(key)).await
    }

    /// Makes all stored responses with a surrogate key stale, over the time `spread`, as
    /// [`Handle::expire_tag`] does.
    ///
    /// # Errors
    /// As [`invalidate_group`](Self::invalidate_group).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn expire_tag(&self, key: &str, spread: Duration) -> Result<(), CacheError> {
        self.entries.expire_tag(&Self::surrogate_tag(key), spread).await
    }

    /// Removes all stored responses of [clearable](super::HttpCacheLayerBuilder::clearable) layers over this
    /// store, as [`Handle::clear`] does.
    ///
    /// # Errors
    /// As [`Handle::clear`].
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn clear(&self) -> Result<(), CacheError> {
        self.entries.clear().await
    }

    /// What the services and handles of this layer have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.entries.stats()
    }
}

bellwether::stats_source! { HttpHandle => CacheStats, |it| it.entries.name() }

/// The keys of a URI. One that cannot be a target has no stored response.
fn keys_of(uri: &Uri) -> HashSet<Key> {
    Target::of_uri(uri).map(|target| target.keys()).unwrap_or_default()
}
