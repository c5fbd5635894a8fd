//! `Ask`: what a request asks of the cache.

use tokio::time::Instant;

use crate::key::Key;

/// What a request asks of the cache: which key, and how.
///
/// What the function of a layer makes of a request. A [`Key`] is one that asks for nothing special,
/// and `None` instead of a key is one that goes straight to the loader.
///
/// ```
/// use bellwether::{Ask, Key};
/// use tokio::time::{Duration, Instant};
///
/// struct Page { path: String, received: Instant, reload: bool }
///
/// let ask = |page: &Page| {
///     let ask = Ask::of(Key::of("page").with(&page.path))
///         .by(page.received + Duration::from_secs(2));
///     if page.reload { ask.anew() } else { ask }
/// };
/// # let _ = ask;
/// ```
#[derive(Clone, Debug)]
pub struct Ask {
    pub(crate) key: Option<Key>,
    pub(crate) how: RequestOptions,
}

/// What a request asks of the cache, apart from the key: for
/// [`CacheClient::request`](crate::adapter::CacheClient::request). The default asks for nothing special.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions {
    pub(crate) deadline: Option<Instant>,
    pub(crate) is_forced: bool,
    /// If what it has waited for is for somebody else only, it asks once more before it loads for
    /// itself: it is not one of those whose answers are their own.
    pub(crate) asks_again: bool,
    /// Where a request would load for itself, its call ends instead, with an error and the status
    /// [`Bypass`](crate::CacheStatus::Bypass): the layer that asks knows better how.
    pub(crate) bypasses_by_itself: bool,
}

impl Ask {
    /// Asks for a key.
    pub fn of(key: Key) -> Self {
        Self { key: Some(key), how: RequestOptions::default() }
    }

    /// Asks for nothing: the request goes straight to the loader.
    pub fn nothing() -> Self {
        Self { key: None, how: RequestOptions::default() }
    }

    /// By when the answer is needed. The deadline bounds everything that the caller waits for: the
    /// store, loads of others and its own load. At the deadline the caller is given a stale answer
    /// if there is one that may be given instead of an error, or else
    /// [`CacheErrorKind::DeadlineExceeded`](crate::CacheErrorKind::DeadlineExceeded).
    ///
    /// - **A load goes on** when the deadline of the caller that leads it comes, for those who wait
    ///   for it, and to be kept; if no caller waits any more,
    ///   [`WhenAbandoned`](crate::WhenAbandoned) says what becomes of it. A call of the loader whose
    ///   answer is for this caller only, as when answers are private or there is no key, is dropped.
    /// - **A wait that cannot succeed is not begun,** going by how long loads take here.
    /// - **A deadline that has passed** starts nothing: neither a question to the store nor a load.
    ///   What is kept in this process is given all the same.
    ///
    /// The wait ends a little before the deadline, so that the answer is there by then: by a tenth of
    /// the time that there was, from 2 ms to 10 ms, and never by more than half of it. A deadline in
    /// 10 ms leaves 8 ms to wait. Timers have steps of 1 ms, so deadlines below 4 ms may be missed by
    /// as much.
    #[must_use]
    pub fn by(self, deadline: Instant) -> Self {
        Self { how: RequestOptions { deadline: Some(deadline), ..self.how }, ..self }
    }

    /// Will not have what is kept, nor word of an earlier failure: it is loaded anew, under the
    /// lease like any other load; if that fails, it is a failure for those who wait for it, and
    /// nobody else. A load that is under way already is waited for instead; to be
    /// sure of something newer, [`invalidate`](crate::Handle::invalidate) first.
    #[must_use]
    pub fn anew(self) -> Self {
        Self { how: RequestOptions { is_forced: true, ..self.how }, ..self }
    }
}

impl RequestOptions {
    /// As [`Ask::by`].
    #[must_use]
    pub fn deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// As [`Ask::anew`], if `yes`.
    #[must_use]
    pub fn force_refresh(self, yes: bool) -> Self {
        Self { is_forced: yes, ..self }
    }

    /// Whether the request is sent to the cache once more before it loads for itself, if the answer
    /// that it waited for is private to another caller. For requests whose own answer can be shared.
    #[must_use]
    pub fn retry_private(self, yes: bool) -> Self {
        Self { asks_again: yes, ..self }
    }

    /// Where the request would load without being coalesced, its call ends with an error and the
    /// status [`Bypass`](crate::CacheStatus::Bypass) instead: the adapter sends it on by itself.
    #[must_use]
    pub fn return_bypass(self) -> Self {
        Self { bypasses_by_itself: true, ..self }
    }
}

impl From<Key> for Ask {
    fn from(key: Key) -> Self {
        Self::of(key)
    }
}

impl From<Option<Key>> for Ask {
    fn from(key: Option<Key>) -> Self {
        key.map_or_else(Self::nothing, Self::of)
    }
}
