//! `KeyRequest`: what a request asks of the cache.

use tokio::time::Instant;

use crate::key::Key;
use crate::stats::{NotedEvent, RequestRecord};
use crate::tag::Tags;

/// What a request asks of the cache: a key, and options for this request.
///
/// The key function of a layer makes one of each request. A [`Key`] converts into one without
/// options, and `None` into one that bypasses the cache: see [`IntoKeyRequest`].
///
/// ```
/// use bellwether::Key;
/// use bellwether::service::KeyRequest;
/// use tokio::time::{Duration, Instant};
///
/// struct Page { path: String, received: Instant, reload: bool }
///
/// let lookup_of = |page: &Page| {
///     let lookup = KeyRequest::of(Key::of("page").with(&page.path))
///         .deadline(page.received + Duration::from_secs(2));
///     if page.reload { lookup.force_refresh() } else { lookup }
/// };
/// # let _ = lookup_of;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KeyRequest {
    pub(crate) key: Option<Key>,
    pub(crate) options: RequestOptions,
}

/// What a request asks of the cache, apart from the key: for
/// [`AdapterCache::request`](crate::adapter::AdapterCache::request). The default asks for nothing
/// special.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RequestOptions {
    /// When its answer is needed.
    pub(crate) deadline: Option<Instant>,
    /// It loads even if there is a fresh entry.
    pub(crate) is_forced: bool,
    /// It asks once more before it loads individually, if the answer that it waited for is private
    /// to another caller.
    pub(crate) retries_private: bool,
    /// Where it would load individually, its call ends with the status
    /// [`Bypass`](crate::CacheStatus::Bypass) instead.
    pub(crate) returns_bypass: bool,
    /// Its tags, in addition to those that the layer gives it.
    pub(crate) tags: Tags,
    /// It is one of several lookups of a request, which counts once: where it notes its end.
    pub(crate) noted: Option<NotedEvent>,
}

impl KeyRequest {
    /// Asks for a key.
    pub fn of(key: Key) -> Self {
        Self { key: Some(key), options: RequestOptions::default() }
    }

    /// No key: the request bypasses the cache.
    pub fn none() -> Self {
        Self { key: None, options: RequestOptions::default() }
    }

    /// Sets by when the answer is needed. The deadline bounds everything that the caller waits for:
    /// the store, loads of other callers and its own load. At the deadline the caller gets a stale
    /// answer if one may be served instead of an error, or else
    /// [`CacheErrorKind::DeadlineExceeded`](crate::CacheErrorKind::DeadlineExceeded).
    ///
    /// - **A load goes on** after the deadline of the caller that leads it, for its waiters and to
    ///   be stored. If no caller waits any more, [`WhenAbandoned`](crate::WhenAbandoned) applies. A
    ///   load whose answer is for this caller only is dropped.
    /// - **A wait that cannot succeed does not begin,** going by how long loads take here.
    /// - **A deadline that has passed** starts neither a store operation nor a load. A fresh entry
    ///   in this process is served all the same.
    ///
    /// The wait ends a little before the deadline, so that the answer is there by then: by a tenth
    /// of the time that there was, from 2 ms to 10 ms, and never by more than half of it. A
    /// deadline in 10 ms leaves 8 ms to wait. Timers have steps of 1 ms, so deadlines below 4 ms
    /// may be missed by as much.
    pub fn deadline(self, deadline: Instant) -> Self {
        Self { options: RequestOptions { deadline: Some(deadline), ..self.options }, ..self }
    }

    /// Forces a refresh: the request gets neither the stored entry nor a remembered failure, and
    /// loads under the lease like any other. Its failure concerns its own waiters only, and puts
    /// the key into no cooldown. The request joins a load under way; to get a newer value,
    /// [`invalidate`](crate::service::Handle::invalidate) first.
    pub fn force_refresh(self) -> Self {
        Self { options: RequestOptions { is_forced: true, ..self.options }, ..self }
    }
}

/// What a key function may return: a [`Key`], an `Option<Key>`, a [`KeyRequest`], or a type of your own
/// that converts into a [`KeyRequest`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key",
    label = "not what a key function returns",
    note = "a key function returns a `Key`, an `Option<Key>` or a `KeyRequest`: \
            `|sku: &u64| Key::of(\"item\").with(*sku)`"
)]
pub trait IntoKeyRequest: Into<KeyRequest> {}

// Otherwise the compiler speaks of `From`.
#[diagnostic::do_not_recommend]
impl<T: Into<KeyRequest>> IntoKeyRequest for T {}

impl RequestOptions {
    /// As [`KeyRequest::deadline`].
    pub fn deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// As [`KeyRequest::force_refresh`], if `yes`.
    pub fn force_refresh(self, yes: bool) -> Self {
        Self { is_forced: yes, ..self }
    }

    /// Sets the tags of the request, in addition to those that the [layer](crate::service::ReadThroughLayerBuilder::tags)
    /// gives it.
    pub fn tagged(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    /// If `yes`, and the answer that the request waited for is private to another caller, the
    /// request asks the cache once more before it loads individually. For requests whose own answer
    /// can be shared.
    pub fn retry_private(self, yes: bool) -> Self {
        Self { retries_private: yes, ..self }
    }

    /// It is one of the lookups of this request, and does not count by itself.
    pub fn part_of(self, request: &RequestRecord) -> Self {
        Self { noted: Some(request.noted().clone()), ..self }
    }

    /// Where the request would load without being coalesced, its call ends with an error and the
    /// status [`Bypass`](crate::CacheStatus::Bypass) instead. The adapter then calls the loader
    /// itself.
    pub fn return_bypass(self) -> Self {
        Self { returns_bypass: true, ..self }
    }
}

impl From<Key> for KeyRequest {
    fn from(key: Key) -> Self {
        Self::of(key)
    }
}

impl From<Option<Key>> for KeyRequest {
    fn from(key: Option<Key>) -> Self {
        key.map_or_else(Self::none, Self::of)
    }
}
