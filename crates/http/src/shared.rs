//! What all services of a layer share: the core, and how responses are judged.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::{BypassPermit, CacheClient, PrivateKeys, warn_throttled};
use bellwether::store::Entry;
use bellwether_body::{Follow, Followed};
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, StatusCode};
use tokio::time::Instant;

use super::asked::CacheRequest;
use super::kept::{CacheAnswer, CachedResponse, Disposition, HttpCodec, KeptAnswer, VaryIndex};
use super::mode::Mode;
use super::rules::Why;
use super::target::TargetUri;
use super::variants::Variants;

/// What all services of a layer share.
#[derive(Clone, Debug)]
pub(super) struct LayerState {
    pub(super) client: CacheClient<HttpCodec>,
    pub(super) mode: Arc<Mode>,
    pub(super) target: TargetUri,
    /// Targets whose answers are each for one caller.
    pub(super) unshared: Arc<PrivateKeys>,
    pub(super) variants: Arc<Variants>,
}

/// A response that was found in the store.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) key: Key,
    pub(super) entry: Entry,
    pub(super) whole: Arc<CachedResponse>,
    /// How it is told from others, if it is one of several variants.
    pub(super) vary_index: Option<Arc<VaryIndex>>,
}

impl Located {
    /// Whether it is told from others by all these fields of a request.
    pub(super) fn is_told_by(&self, names: &[HeaderName]) -> bool {
        self.vary_index.as_ref().map_or(names.is_empty(), |vary_index| vary_index.covers(names))
    }
}

impl LayerState {
    /// Leave for a request to ask the origin without waiting for the load of another.
    pub(super) fn bypass(&self, asked: &CacheRequest) -> Option<BypassPermit> {
        self.unshared.bypass(&asked.alike())
    }

    /// Notes that the answer to a request was for its caller only. One that refuses, fails or has
    /// not changed says nothing of the answers to others, nor does one that is private because the
    /// request says so.
    pub(super) fn note_private(&self, asked: &CacheRequest, status: StatusCode, why: &Why) {
        let (alike, window) = (asked.alike(), self.client.not_kept_for());
        match why {
            Why::RequestNoStore => {}
            Why::TooSlow => self.unshared.note_slow(alike, window),
            _ if status.is_server_error() || SAYS_NOTHING.contains(&status) => {}
            _ => self.unshared.note_private(alike, window),
        }
    }

    /// Notes that the answer to a request may be shared, and is complete.
    pub(super) fn note_shared(&self, asked: &CacheRequest) {
        self.unshared.note_shared(&asked.alike());
    }

    /// Until when a response has to be complete to be kept, if its head is there now. The less
    /// time, the more of those before took too long.
    pub(super) fn deadline(&self, asked: &CacheRequest) -> Instant {
        let slow = self.unshared.slow_in_a_row(&asked.alike()).min(MOST_SLOW);
        let now = Instant::now();
        now.checked_add(self.client.collect_within() / 8_u32.pow(slow)).unwrap_or(now)
    }

    /// Follows a response that goes through and could be shared if it were complete in time.
    pub(super) fn follow(&self, asked: &CacheRequest) -> Follow {
        let (alike, unshared, window) =
            (asked.alike(), Arc::clone(&self.unshared), self.client.not_kept_for());
        let deadline = Instant::now() + self.client.collect_within().min(LONGEST_FOLLOWED);
        Follow::new(self.client.max_entry_bytes(), deadline, move |followed| match followed {
            Followed::Complete { .. } => unshared.note_shared(&alike),
            Followed::Unfinished => unshared.note_slow(alike, window),
        })
    }

    /// The response that is kept under a key itself.
    pub(super) async fn whole_at<B: Send + 'static>(&self, key: &Key) -> Option<Located> {
        let entry = self.client.lookup(key).await?;
        match &*self.client.read::<CacheAnswer<B>>(&entry)? {
            KeptAnswer::CachedResponse(whole) => {
                let whole = Arc::clone(whole);
                Some(Located { key: key.clone(), entry, whole, vary_index: None })
            }
            _ => None,
        }
    }

    /// The response that is kept for a request: for its target, or the variant that it selects.
    pub(super) async fn locate<B: Send + 'static>(
        &self,
        primary: &Key,
        request: &HeaderMap,
    ) -> Option<Located> {
        let entry = self.client.lookup(primary).await?;
        match &*self.client.read::<CacheAnswer<B>>(&entry)? {
            KeptAnswer::CachedResponse(whole) => {
                let whole = Arc::clone(whole);
                Some(Located { key: primary.clone(), entry, whole, vary_index: None })
            }
            KeptAnswer::VaryIndex(vary_index) => {
                let located = self.whole_at::<B>(&vary_index.key_for(primary, request)).await?;
                Some(Located { vary_index: Some(Arc::clone(vary_index)), ..located })
            }
            KeptAnswer::Passthrough(_) | KeptAnswer::Retry => None,
        }
    }

    /// Stores a response under a key outside of a load, unless another caller has the lease of the
    /// key, or what is there is not what it has to be.
    pub(super) async fn keep<B: Send + 'static>(
        &self,
        key: Key,
        whole: &Arc<CachedResponse>,
        instead_of: impl FnOnce(Option<&Entry>) -> bool,
    ) -> bool {
        let Disposition::Keep(windows) = whole.disposition else { return false };
        let windows = self.client.jittered(windows);
        let kept = KeptAnswer::CachedResponse(Arc::clone(whole));
        self.client.replace::<CacheAnswer<B>>(key, kept, windows, instead_of).await
    }

    /// Replaces a `Vary` index by another, unless it is not the one that is there any more, or
    /// another caller has the lease of the key.
    pub(super) async fn replace_vary_index<B: Send + 'static>(
        &self,
        primary: &Key,
        old: &VaryIndex,
        vary_index: VaryIndex,
    ) -> bool {
        let is_old = |entry: Option<&Entry>| {
            let kept = entry.and_then(|entry| self.client.read::<CacheAnswer<B>>(entry));
            matches!(kept.as_deref(), Some(KeptAnswer::VaryIndex(found)) if found.is_same_as(old))
        };
        let windows = vary_index.windows();
        let kept = KeptAnswer::VaryIndex(Arc::new(vary_index));
        self.client.replace::<CacheAnswer<B>>(primary.clone(), kept, windows, is_old).await
    }

    /// Removes what is kept under some keys. An answer that says so is waited for, but not insisted
    /// on.
    pub(super) async fn invalidate(&self, keys: HashSet<Key>) {
        let store = self.client.store();
        let done = join_all(keys.into_iter().map(|key| store.invalidate(key))).await;
        for error in done.into_iter().filter_map(Result::err) {
            warn_throttled!(%error, "perhaps not invalidated");
        }
    }

    pub(super) async fn expire(&self, key: Key) {
        if let Err(error) = self.client.store().expire(key).await {
            warn_throttled!(%error, "perhaps not expired");
        }
    }
}

/// Statuses of answers that say nothing of the answers to others.
const SAYS_NOTHING: [StatusCode; 5] = [
    StatusCode::NOT_MODIFIED,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::TOO_MANY_REQUESTS,
];

/// How many slow answers in a row leave less and less time.
const MOST_SLOW: u32 = 4;

const LONGEST_FOLLOWED: Duration = Duration::from_secs(60 * 60);
