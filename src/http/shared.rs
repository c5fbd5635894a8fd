//! What all services of a layer share: the core, and how responses are judged.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, StatusCode};
use tokio::time::Instant;

use super::asked::CacheRequest;
use super::kept::{CacheAnswer, CachedResponse, Disposition, HttpCapture, KeptAnswer, VaryIndex};
use super::mode::Mode;
use super::rules::Why;
use super::target::TargetUri;
use super::variants::Variants;
use crate::capture::{Capture, Room};
use crate::key::Key;
use crate::quiet::warn_seldom;
use crate::read_through::{Bypassing, Unshared, Within};
use crate::response::{Follow, Followed};
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Peek, Value, Windows};

/// What all services of a layer share.
#[derive(Clone, Debug)]
pub(super) struct LayerState {
    pub(super) within: Within<HttpCapture>,
    pub(super) mode: Arc<Mode>,
    pub(super) target: TargetUri,
    /// Targets whose answers are each for one caller.
    pub(super) unshared: Arc<Unshared>,
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
    pub(super) fn bypass(&self, asked: &CacheRequest) -> Option<Bypassing> {
        self.unshared.bypass(&asked.alike())
    }

    /// Notes that the answer to a request was for its caller only. One that refuses, fails or has
    /// not changed says nothing of the answers to others, nor does one that is private because the
    /// request says so.
    pub(super) fn note_private(&self, asked: &CacheRequest, status: StatusCode, why: &Why) {
        let (alike, window) = (asked.alike(), self.within.not_kept_for());
        match why {
            Why::RequestNoStore => {}
            Why::TooSlow => self.unshared.note_slow(alike, window),
            _ if status.is_server_error() || SAYS_NOTHING.contains(&status) => {}
            _ => self.unshared.note_unshared(alike, window),
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
        now.checked_add(self.within.collect_within() / 8_u32.pow(slow)).unwrap_or(now)
    }

    /// Follows a response that goes through and could be shared if it were complete in time.
    pub(super) fn follow(&self, asked: &CacheRequest) -> Follow {
        let (alike, unshared, window) =
            (asked.alike(), Arc::clone(&self.unshared), self.within.not_kept_for());
        let deadline = Instant::now() + self.within.collect_within().min(LONGEST_FOLLOWED);
        Follow::new(self.within.max_entry_bytes(), deadline, move |followed| match followed {
            Followed::Complete { .. } => unshared.note_shared(&alike),
            Followed::Unfinished => unshared.note_slow(alike, window),
        })
    }

    /// What is kept under a key, fresh or not. A store that fails has nothing.
    pub(super) async fn entry(&self, key: &Key) -> Option<Entry> {
        let store = self.within.store();
        match store.peek(key) {
            Peek::Found(entry) => Some(entry),
            Peek::Gone => None,
            Peek::Unknown => match store.look(key.clone()).await {
                Ok(entry) => entry,
                Err(error) => {
                    warn_seldom!(%error, "taken for a miss");
                    None
                }
            },
        }
    }

    pub(super) fn read<B: Send + 'static>(&self, entry: &Entry) -> Option<Arc<KeptAnswer<B>>> {
        self.within.read::<CacheAnswer<B>>(entry)
    }

    /// The response that is kept under a key itself.
    pub(super) async fn whole_at<B: Send + 'static>(&self, key: &Key) -> Option<Located> {
        let entry = self.entry(key).await?;
        match &*self.read::<B>(&entry)? {
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
        let entry = self.entry(primary).await?;
        match &*self.read::<B>(&entry)? {
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

    /// Keeps a response under a key by itself, unless another caller has its lease, or what is
    /// there is not what it has to be.
    pub(super) async fn keep<B: Send + 'static>(
        &self,
        key: Key,
        whole: &Arc<CachedResponse>,
        instead_of: impl FnOnce(Option<&Entry>) -> bool,
    ) -> bool {
        let Disposition::Keep(windows) = whole.disposition else { return false };
        let Some(lease) = self.lease(key, instead_of).await else { return false };
        let mut room = Room::new(self.within.max_entry_bytes());
        if HttpCapture::encode_whole(whole, &mut room).is_err() {
            self.abandon(lease).await;
            return false;
        }
        let windows = self.within.jittered(windows);
        let value = value_of::<B>(KeptAnswer::CachedResponse(Arc::clone(whole)), room);
        self.commit(lease, value, windows).await
    }

    /// Replaces a `Vary` index by another, unless another one is there by now, or
    /// another caller has its lease.
    pub(super) async fn replace_spec<B: Send + 'static>(
        &self,
        primary: &Key,
        old: &VaryIndex,
        vary_index: VaryIndex,
    ) -> bool {
        let lease = self.lease(primary.clone(), |entry| {
            let kept = entry.and_then(|entry| self.read::<B>(entry));
            matches!(kept.as_deref(), Some(KeptAnswer::VaryIndex(vary_index)) if vary_index.is_same_as(old))
        });
        let Some(lease) = lease.await else { return false };
        let mut room = Room::new(self.within.max_entry_bytes());
        if HttpCapture::encode_spec(&vary_index, &mut room).is_err() {
            self.abandon(lease).await;
            return false;
        }
        let windows = vary_index.windows();
        let value = value_of::<B>(KeptAnswer::VaryIndex(Arc::new(vary_index)), room);
        self.commit(lease, value, windows).await
    }

    /// The lease on a key, if it is free and what is there will do.
    async fn lease(&self, key: Key, will_do: impl FnOnce(Option<&Entry>) -> bool) -> Option<Lease> {
        let acquired = self.within.store().acquire(Claim::new(key), TERM, Accept::Nothing).await;
        match acquired {
            Ok(Acquire::Lead { lease, stale, .. }) if will_do(stale.as_ref()) => Some(lease),
            Ok(Acquire::Lead { lease, .. }) => {
                self.abandon(lease).await;
                None
            }
            Ok(_) => None,
            Err(error) => {
                warn_seldom!(%error, "loaded, and not kept");
                None
            }
        }
    }

    async fn commit(&self, lease: Lease, value: Value, windows: Windows) -> bool {
        let draft = Draft::new(value, HttpCapture::CODEC, windows);
        match self.within.store().commit(lease, draft).await {
            Ok(committed) => committed == Commit::Stored,
            Err(error) => {
                warn_seldom!(%error, "loaded, and perhaps not kept");
                false
            }
        }
    }

    /// Removes what is kept under a key, unless it is loaded just now.
    pub(super) async fn remove(&self, key: Key) {
        if let Some(lease) = self.lease(key, |_| true).await {
            self.commit(lease, Value::new(Bytes::new()), Windows::NONE).await;
        }
    }

    async fn abandon(&self, lease: Lease) {
        if let Err(error) = self.within.store().abandon(lease.into_claim()).await {
            tracing::debug!(%error, "the lease lapses by itself");
        }
    }

    /// Removes what is kept under some keys. An answer that says so is waited for, but not insisted
    /// on.
    pub(super) async fn invalidate(&self, keys: HashSet<Key>) {
        let store = self.within.store();
        let done = join_all(keys.into_iter().map(|key| store.invalidate(key))).await;
        for error in done.into_iter().filter_map(Result::err) {
            warn_seldom!(%error, "perhaps not invalidated");
        }
    }

    pub(super) async fn expire(&self, key: Key) {
        if let Err(error) = self.within.store().expire(key).await {
            warn_seldom!(%error, "perhaps not expired");
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
/// What is kept, and its bytes.
fn value_of<B: Send + 'static>(kept: KeptAnswer<B>, room: Room) -> Value {
    let encoded = room.into_bytes();
    let kept = Capture::<CacheAnswer<B>>::settle(&HttpCapture, kept, &encoded);
    let beside = Capture::<CacheAnswer<B>>::weight(&HttpCapture, &kept, &encoded);
    Value::of(encoded, Arc::new(kept), beside)
}

/// How long a lease holds that is taken to store what is there already.
const TERM: Duration = Duration::from_secs(2);
