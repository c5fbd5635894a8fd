//! What all services of a layer share: the core, and how responses are judged.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, StatusCode};

use super::apart::Apart;
use super::kept::{Fate, Found, HttpCapture, Kept, Spec, Whole};
use super::mode::{Judgement, Mode};
use super::target::TargetUri;
use crate::capture::Room;
use crate::key::Key;
use crate::quiet::warn_seldom;
use crate::read_through::Within;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Peek, Value, Windows};

/// What all services of a layer share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) within: Within<HttpCapture>,
    pub(super) mode: Arc<Mode>,
    pub(super) target: TargetUri,
    pub(super) apart: Arc<Apart>,
}

/// A response that was found in the store.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) key: Key,
    pub(super) entry: Entry,
    pub(super) whole: Arc<Whole>,
    /// How it is told from others, if it is one of several variants.
    pub(super) spec: Option<Arc<Spec>>,
}

impl Located {
    /// Whether it is told from others by all these fields of a request.
    pub(super) fn is_told_by(&self, names: &[HeaderName]) -> bool {
        self.spec.as_ref().map_or(names.is_empty(), |spec| spec.covers(names))
    }
}

impl Shared {
    /// Whether a request waits for no load of others.
    pub(super) fn goes_apart(&self, request: &HeaderMap, target: &Key) -> bool {
        request.contains_key(AUTHORIZATION) && self.apart.has(target)
    }

    /// Notes whether what a request with credentials was answered says anything of such requests.
    pub(super) fn note_whose(
        &self,
        target: &Key,
        request: &HeaderMap,
        status: StatusCode,
        judgement: &Judgement,
    ) {
        if request.contains_key(AUTHORIZATION) {
            self.apart.hear(target, status, judgement, self.within.not_kept_for());
        }
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

    pub(super) fn read<B: Send + 'static>(&self, entry: &Entry) -> Option<Arc<Kept<B>>> {
        self.within.read::<Found<B>>(entry)
    }

    /// The response that is kept under a key itself.
    pub(super) async fn whole_at<B: Send + 'static>(&self, key: &Key) -> Option<Located> {
        let entry = self.entry(key).await?;
        match &*self.read::<B>(&entry)? {
            Kept::Whole(whole) => {
                let whole = Arc::clone(whole);
                Some(Located { key: key.clone(), entry, whole, spec: None })
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
            Kept::Whole(whole) => {
                let whole = Arc::clone(whole);
                Some(Located { key: primary.clone(), entry, whole, spec: None })
            }
            Kept::Spec(spec) => {
                let located = self.whole_at::<B>(&spec.key_for(primary, request)).await?;
                Some(Located { spec: Some(Arc::clone(spec)), ..located })
            }
            Kept::Passing(_) | Kept::Moved => None,
        }
    }

    /// Keeps a response under a key by itself, unless somebody else is about it, or what is there
    /// is not what it has to be.
    pub(super) async fn keep<B: Send + 'static>(
        &self,
        key: Key,
        whole: &Arc<Whole>,
        instead_of: impl FnOnce(Option<&Entry>) -> bool,
    ) -> bool {
        let Fate::Keep(windows) = whole.fate else { return false };
        let Some(lease) = self.lease(key, instead_of).await else { return false };
        let mut room = Room::new(self.within.max_entry_bytes());
        if HttpCapture::encode_whole(whole, &mut room).is_err() {
            self.abandon(lease).await;
            return false;
        }
        let kept: Kept<B> = Kept::Whole(Arc::clone(whole));
        let windows = self.within.jittered(windows);
        self.commit(lease, Value::of(room.into_bytes(), Arc::new(kept)), windows).await
    }

    /// Replaces a spec by another, unless it is not the one that is there any more, or somebody
    /// else is about it.
    pub(super) async fn replace_spec<B: Send + 'static>(
        &self,
        primary: &Key,
        old: &Spec,
        new: impl FnOnce(&Spec) -> Option<Spec>,
    ) -> bool {
        let mut found = None;
        let lease = self.lease(primary.clone(), |entry| {
            let kept = entry.and_then(|entry| self.read::<B>(entry));
            if let Some(Kept::Spec(spec)) = kept.as_deref()
                && spec.is_same_as(old)
            {
                found = new(spec);
            }
            found.is_some()
        });
        let Some(lease) = lease.await else { return false };
        let Some(spec) = found else { return false };
        let mut room = Room::new(self.within.max_entry_bytes());
        if HttpCapture::encode_spec(&spec, &mut room).is_err() {
            self.abandon(lease).await;
            return false;
        }
        let windows = spec.windows();
        let kept: Kept<B> = Kept::Spec(Arc::new(spec));
        self.commit(lease, Value::of(room.into_bytes(), Arc::new(kept)), windows).await
    }

    /// The lease on a key, if nobody has it and what is there will do.
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

/// How long a lease holds that is taken to store what is there already.
const TERM: Duration = Duration::from_secs(2);
