//! `LayerState`: what all services of a layer share, and its operations on the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwether::adapter::{AdapterCache, BypassPermit, PrivateKeys, warn_throttled};
use bellwether::codec::Cacheability;
use bellwether::service::Handle;
use bellwether::store::{Entry, StoreErrorKind, Tags, Withdrawal, WithdrawalTarget};
use bellwether::{CacheStatus, Key, StaleReason, StoreError, Tag};
use bellwether_body::{BodyBudget, BodyObserver, ObservedBody};
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::Instrument;

use super::bearer_token::BearerToken;
use super::cache_request::CacheRequest;
use super::caching_rules::Rules;
use super::codec::{CacheAnswer, CachedResponse, HttpCodec};
use super::retry_pool::RetryPool;
use super::rules::{PrivateReason, Storing, Terms, Times};
use super::tag_fields::TagFields;
use super::target::TargetUri;
use super::target_gates::TargetGates;
use super::variants::Variants;
use super::vary_index::VaryIndex;

/// What all services of a layer share: the cache, the rules, and what was learned about targets.
pub(super) struct LayerState {
    pub(super) client: AdapterCache<HttpCodec>,
    pub(super) rules: Rules,
    pub(super) parts: LayerCore,
}

bellwether::debug_fields! { LayerState => |it| client = it.client, rules = it.rules }

/// What a layer and its services share, whatever its other options are.
pub(super) struct LayerCore {
    pub(super) target: TargetUri,
    /// Targets with private responses. Requests for them are not coalesced.
    pub(super) private_targets: Arc<PrivateKeys>,
    /// Requests that wait once more, since the load of another request had an error.
    pub(super) retries: Arc<RetryPool>,
    /// Requests that ask the origin because no response that they could share came. `None`: no bound.
    pub(super) unshared: Option<Arc<TargetGates>>,
    pub(super) collecting: BodyBudget,
    pub(super) variants: Arc<Variants>,
    pub(super) tag_fields: TagFields,
    /// Permits to finish an unsafe request whose caller has left.
    pub(super) finishing: Arc<Semaphore>,
    /// What a `PURGE` request proves its right by.
    pub(super) purge_token: Option<BearerToken>,
}

/// A response that was found in the store.
pub(super) struct Located {
    pub(super) key: Key,
    pub(super) entry: Entry,
    pub(super) cached: Arc<CachedResponse>,
    /// The `Vary` index that selected it, if it is a variant.
    pub(super) vary_index: Option<Arc<VaryIndex>>,
}

impl Located {
    /// How a request gets it as it is, if it may.
    pub(super) fn status(&self) -> Option<CacheStatus> {
        match self.entry.stale_for() {
            _ if self.entry.is_fresh() => {
                Some(CacheStatus::Hit { fresh_for: self.entry.fresh_for() })
            }
            Some(stale_for) if self.entry.serves_while_revalidating() => {
                Some(CacheStatus::Stale { why: StaleReason::Revalidating, stale_for })
            }
            _ => None,
        }
    }
}

impl LayerState {
    /// A handle to the entries by their keys. It expires the variants of a response with its index.
    pub(super) fn entries(&self) -> Handle {
        let client = self.client.clone();
        self.client.handle().expiring_by(move |key| {
            let expired = expire(client.clone(), key);
            let Ok(runtime) = runtime::Handle::try_current() else { return Box::pin(expired) };
            // A task, which goes on if the caller leaves.
            let expired = runtime.spawn(expired.in_current_span());
            let ended = |_| Err(StoreError::new(StoreErrorKind::Unreachable, ENDED));
            Box::pin(async move { expired.await.unwrap_or_else(ended) })
        })
    }

    /// Whether a response to GET is stored, by its header fields and those of its request. Its lifetime
    /// is jittered here, so that all its readers read the same.
    pub(super) fn classify(
        &self,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> Storing {
        match self.rules.classify(request, status, response, times) {
            Storing::Keep(terms) => {
                let lifetimes = self.client.jittered(terms.lifetimes);
                Storing::Keep(Terms { lifetimes, ..terms })
            }
            decision => decision,
        }
    }

    /// A permit to ask the origin without coalescing, if the last responses of the target were
    /// private.
    pub(super) fn bypass(&self, cache_request: &CacheRequest) -> Option<BypassPermit> {
        self.parts.private_targets.bypass(&cache_request.coalescing_digest())
    }

    /// Notes that the response to a request was private. Errors, refusals and 304 are not counted,
    /// and neither is a response that is private only because the request says `no-store`, or because
    /// other bodies had used up the budget: they say nothing about the responses to other requests.
    pub(super) fn note_private(
        &self,
        cache_request: &CacheRequest,
        status: StatusCode,
        why: &PrivateReason,
    ) {
        let coalescing_digest = cache_request.coalescing_digest();
        let window = self.client.private_for();
        match why {
            PrivateReason::OverBudget => {}
            PrivateReason::TooSlow => {
                self.parts.private_targets.note_slow(coalescing_digest, window)
            }
            _ if status.is_server_error() || SAYS_NOTHING.contains(&status) => {}
            _ => self.parts.private_targets.note_private(coalescing_digest, window),
        }
    }

    /// Notes that the response to a request may be shared and is complete, so that the next
    /// requests are coalesced.
    pub(super) fn note_shared(&self, cache_request: &CacheRequest) {
        self.parts.private_targets.note_shared(&cache_request.coalescing_digest());
    }

    /// By when a response whose head has just arrived must be complete to be stored. Each slow
    /// response in a row before it divides the time by eight.
    pub(super) fn deadline(&self, cache_request: &CacheRequest) -> Instant {
        let slow = self
            .parts
            .private_targets
            .slow_in_a_row(&cache_request.coalescing_digest())
            .min(MOST_SLOW);
        Instant::now() + self.client.collect_within() / 8_u32.pow(slow)
    }

    /// Observes a response that passes through, to learn whether it is complete in time. If it is,
    /// the next requests are coalesced.
    pub(super) fn completion_observer(&self, cache_request: &CacheRequest) -> BodyObserver {
        let coalescing_digest = cache_request.coalescing_digest();
        let private_targets = Arc::clone(&self.parts.private_targets);
        let window = self.client.private_for();
        let deadline = Instant::now() + self.client.collect_within();
        BodyObserver::new(self.client.max_entry_bytes(), deadline, move |observed| match observed {
            ObservedBody::Complete { .. } => private_targets.note_shared(&coalescing_digest),
            ObservedBody::Unfinished => private_targets.note_slow(coalescing_digest, window),
        })
    }

    /// A response without the field that clients do not get.
    pub(super) fn without_hidden<B>(&self, mut response: Response<B>) -> Response<B> {
        if let Some(name) = self.parts.tag_fields.hidden() {
            response.headers_mut().remove(name);
        }
        response
    }

    /// The fields of a response that are for the caller whose request loaded it.
    pub(super) fn unstored(&self) -> &[HeaderName] {
        &self.rules.defaults.unstored
    }

    /// The tags of the response to a request.
    pub(super) fn tags_of(&self, response: &HeaderMap, request: &Parts) -> Vec<Tag> {
        self.parts
            .tag_fields
            .tags_of(response, || self.parts.target.target_of(&mut request.clone()))
    }

    /// What is stored under a key with these tags.
    pub(super) async fn found<B: Send + 'static>(
        &self,
        key: &Key,
        tags: &Tags,
    ) -> Option<(Entry, Arc<CacheAnswer<B>>)> {
        let entry = self.client.lookup(key, tags).await?;
        let answer = self.client.read::<CacheAnswer<B>>(&entry)?;
        Some((entry, answer))
    }

    /// The stored response that suits a request, directly or as a variant.
    pub(super) async fn locate<B: Send + 'static>(
        &self,
        primary: &Key,
        request: &HeaderMap,
    ) -> Option<Located> {
        let (entry, answer) = self.found::<B>(primary, &Tags::none()).await?;
        let CacheAnswer::VaryIndex(index) = &*answer else {
            let cached = Arc::clone(answer.response()?);
            return Some(Located { key: primary.clone(), entry, cached, vary_index: None });
        };
        let key = index.key_for(primary, request);
        let tags = VaryIndex::tags_of_request(Some(index), primary);
        let (entry, variant) = self.found::<B>(&key, &tags).await?;
        let cached = Arc::clone(variant.response()?);
        Some(Located { key, entry, cached, vary_index: Some(Arc::clone(index)) })
    }

    /// Stores a response under a key, outside of a load. Does nothing while another caller holds the
    /// lease of the key.
    pub(super) async fn keep<B: Send + 'static>(&self, key: Key, cached: &Arc<CachedResponse>) {
        let Cacheability::KeepFor(lifetimes) = cached.cacheability else { return };
        let kept = CacheAnswer::CachedResponse(Arc::clone(cached));
        self.client.replace::<CacheAnswer<B>>(key, kept, lifetimes, |_| true).await;
    }

    /// Replaces a `Vary` index. Does nothing if another index is stored by now, or while another
    /// caller holds the lease of the key.
    pub(super) async fn replace_vary_index<B: Send + 'static>(
        &self,
        primary: &Key,
        old: &VaryIndex,
        vary_index: VaryIndex,
    ) -> bool {
        let is_old = |entry: Option<&Entry>| {
            let kept = entry.and_then(|entry| self.client.read::<CacheAnswer<B>>(entry));
            matches!(kept.as_deref(), Some(CacheAnswer::VaryIndex(found)) if found.nonce == old.nonce)
        };
        let lifetimes = vary_index.lifetimes();
        let kept = CacheAnswer::VaryIndex(Arc::new(vary_index));
        self.client.replace::<CacheAnswer<B>>(primary.clone(), kept, lifetimes, is_old).await
    }

    /// Invalidates keys and tags, and waits until the store has confirmed. An error is logged only:
    /// the request that caused this has its response already.
    pub(super) async fn invalidate(&self, keys: HashSet<Key>, tags: Vec<Tag>) {
        let store = self.client.store();
        let targets = keys
            .into_iter()
            .map(WithdrawalTarget::Key)
            .chain(tags.into_iter().map(WithdrawalTarget::Tag));
        let changes = targets.map(|target| store.withdraw(target, Withdrawal::Invalidate));
        for error in join_all(changes).await.into_iter().filter_map(Result::err) {
            warn_throttled!(target: "bellwether::http", %error, "a response was perhaps not invalidated");
        }
    }

    /// Makes the responses under these keys stale, with all variants. Where none is stored and no load is
    /// under way, it leaves nothing in the store. An error is logged only.
    pub(super) async fn expire_if_in_use(&self, keys: HashSet<Key>) {
        for key in keys {
            if self.client.is_in_use(&key).await
                && let Err(error) = self.entries().expire(&key).await
            {
                warn_throttled!(target: "bellwether::http", %error, "a response was perhaps not expired");
            }
        }
    }
}

/// Makes the entry of a key stale, or the variants of the index that it is. Returns whether there was an entry.
///
/// An index that expired would be gone, and all variants with it. So if it is still there, only the variants expire.
///
/// That ends no load of the target itself. Seldom is there one beside an index: a forced refresh that began as the
/// index was being stored, or a load whose lease is newer than that of the index, which lapsed before its commit. What
/// such a load stores counts as newer than the expiry, though it may have begun before.
async fn expire(client: AdapterCache<HttpCodec>, key: Key) -> Result<bool, StoreError> {
    let store = client.store();
    let is_index = async || {
        let found = store.lookup(key.clone(), Tags::none()).await;
        found.is_ok_and(|found| found.as_ref().is_some_and(HttpCodec::is_index))
    };
    let was_index = is_index().await;
    let mut expired = Ok(false);
    if was_index {
        let variants = WithdrawalTarget::Tag(VaryIndex::tag(&key));
        expired = store.withdraw(variants, Withdrawal::EXPIRE).await;
        // If the store does not answer, the index may be of this process only.
        if expired.is_ok() && is_index().await {
            return Ok(true);
        }
    }
    let was_there = store.withdraw(WithdrawalTarget::Key(key), Withdrawal::EXPIRE).await?;
    expired.map(|_| was_there || was_index)
}

const ENDED: &str = "the runtime ended during an expiry";

/// How much longer an entry is stored: as the store says, or else by the clock of this process.
pub(super) fn left_of(entry: &Entry) -> Duration {
    entry.remaining().unwrap_or_else(|| {
        let end = Duration::from_micros(entry.stored_at()).saturating_add(entry.lifetimes().life());
        end.saturating_sub(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    })
}

/// Statuses that say nothing about the responses to other requests.
const SAYS_NOTHING: [StatusCode; 5] = [
    StatusCode::NOT_MODIFIED,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::TOO_MANY_REQUESTS,
];

/// How many slow responses in a row shorten the time: by 8^4 at most.
const MOST_SLOW: u32 = 4;
