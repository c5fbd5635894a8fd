//! The server as a store, whose errors are those of the server. Each operation is a recipe: settle what is
//! kept, read the epochs of tags, run a script, judge its reply by the tags, and keep a near copy or drop it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::lookups::{Lookups, NeedsTime};
use super::near::{self, Near, ReadStart, Version};
use super::outbox::ledger::{KeepingRules, Ledger, OutboxItem, WithdrawnDigest};
use super::outbox::{Outbox, Unsettled};
use super::scripts::{self, AcquireReply, FOUND, ReplyFields, Seen, any, is_done, number};
use super::stats::RedisStats;
use super::tags::{LastSeen, ReadTags, TagReader};
use super::{envelope, failure};
use bellwether::adapter::{micros, millis};
use bellwether::stats::{OperationCounters, OutageStats, StoreOperation};
use bellwether::store::{
    Accept, Acquire, Claim, Digest, Draft, End, Entry, Failure, Lease, OtherLease, Peek, Renew,
    Settled, Store, StoreErrorKind, StoreFuture, TagEpoch, Tags, Watch, Watchers, Withdrawal,
    WithdrawalTarget,
};
use bellwether::trace::TraceParent;
use bellwether::{ConfigError, Key, StoreError};
use bellwether_redis_client::{
    ClientSetup, OneTask, RedisClient, RedisClientOptions, RedisRequest, SlotOwners, Tracking,
};

/// The parts of a store, which the clones of its handle share.
///
/// Aligned, so that it is apart in memory from the count of its owners, which each operation
/// changes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct StoreCore {
    pub(super) name: Arc<str>,
    pub(super) client: RedisClient,
    pub(super) near: Option<Arc<Near>>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) tags: TagReader,
    heartbeat: OneTask,
    pub(super) operations: OperationCounters,
}

impl StoreCore {
    /// `near` has the bytes of the copies in this process, and how long they are used.
    pub(super) fn new(
        options: RedisClientOptions,
        name: Arc<str>,
        near: Option<(usize, Duration)>,
        keeping: KeepingRules,
    ) -> Result<Self, ConfigError> {
        let timeout = options.request_timeout();
        let owners = Arc::new(SlotOwners::new(options.is_cluster()));
        let near = near.map(|(bytes, near_ttl)| {
            let silence = near::silence(timeout);
            Arc::new(Near::new(bytes, near_ttl, silence, Arc::clone(&owners)))
        });
        let watchers = Watchers::default();
        let copies = near.clone();
        let ledger =
            Arc::new(Ledger::new(keeping, timeout, Arc::clone(&name), copies, watchers.clone()));
        let setup = ClientSetup {
            watchers,
            tracking: if near.is_some() { Tracking::Copies } else { Tracking::Nothing },
            observers: near
                .iter()
                .map(|near| Arc::clone(near) as _)
                .chain([Arc::clone(&ledger) as _])
                .collect(),
            owners: Some(owners),
        };
        let client = RedisClient::new(options, setup)?;
        let outbox = Arc::new(Outbox::new(client.clone(), ledger));
        let tags = TagReader {
            client: client.clone(),
            near: near.clone(),
            lookups: Lookups::new(client.clone(), near.is_some()),
            outbox: Arc::clone(&outbox),
            last_seen: LastSeen::default(),
        };
        let operations = OperationCounters::default();
        Ok(Self { name, client, near, outbox, tags, heartbeat: OneTask::default(), operations })
    }

    pub(super) fn stats(&self, outage: OutageStats) -> RedisStats {
        let [connects, outages, stalls, pushes] = self.client.figures();
        RedisStats {
            connects,
            outages,
            stalls,
            pushes,
            unreadable: self.tags.lookups.unreadable.load(Ordering::Relaxed),
            operation_times: self.operations.times(),
            errors: self.operations.errors(),
            is_down: self.client.is_down(),
            replay: self.outbox.ledger.stats(),
            is_subscribed: self.client.is_subscribed(),
            near: self.near.as_ref().map(|near| near.stats()),
            outage,
            nodes: self.client.node_stats(),
        }
    }

    /// Reads an entry and its tags as one command: those of the request, and those that the entry had
    /// when it was last seen. Others are read after it. An entry whose life is not known yet is read
    /// again.
    pub(super) async fn lookup(&self, key: &Key, tags: &Tags) -> Result<Option<Entry>, StoreError> {
        let (ledger, digest) = (&self.outbox.ledger, key.digest());
        let mut is_timed = false;
        let expected = self.tags.last_seen.tags_of(&digest, tags);
        let asked = expected.as_ref().unwrap_or(tags);
        let failed = |_: &StoreError| self.tags.last_seen.forget(&digest);
        for _ in 0..TRIES {
            let reassertions = ledger.reassertions();
            let start = self.start_read(&digest);
            let mut known = self.tags.begin(asked);
            let kept = self.outbox.repeat_pending(Some(&digest), asked.iter());
            kept.await.inspect_err(failed)?;
            let read = self.tags.lookups.read(Some(&digest), asked, is_timed);
            let (seen, states) = read.await.inspect_err(failed)?;
            known.note(states);
            let found = match seen.map(|seen| self.tags.lookups.open(seen, key, &digest)) {
                Some(Ok(Some(entry))) => self.tags.judge(entry, tags, &mut known, &digest).await?,
                Some(Err(NeedsTime)) => {
                    is_timed = true;
                    continue;
                }
                _ => None,
            };
            if ledger.reassertions() == reassertions {
                self.tags.note(&known);
                let versions = found.as_ref().and_then(|entry| known.versions(entry));
                self.keep(start, versions, key, found.as_ref());
                return Ok(found);
            }
        }
        Err(unanswered(REPLACED, LOOKING_UP, key))
    }

    /// Takes the lease. An entry that is unreadable or, because of its tags, not fresh counts as none and
    /// must not prevent a load. So the request is sent again and declines the fence of that entry.
    ///
    /// If the server refuses a request as late, but the refusal arrives in time, the server's clock
    /// was set. The reply corrects the estimate, and the request is sent again.
    pub(super) async fn acquire(
        &self,
        claim: &Claim,
        term: Duration,
        mut accept: Accept,
    ) -> Result<Acquire, StoreError> {
        let (ledger, key, digest) = (&self.outbox.ledger, claim.key(), claim.key().digest());
        ledger.takes(claim);
        let mut unsettled = self.outbox.unsettled(None);
        let mut missing = REPLACED;
        for _ in 0..TRIES {
            let reassertions = ledger.reassertions();
            let start = self.start_read(&digest);
            self.outbox.repeat_pending(Some(&digest), claim.tags().iter()).await?;
            let mut tags = self.tags.touch(claim.tags(), Duration::ZERO).await?;
            let reply = self.claim(claim, (term, accept), &mut unsettled).await?;
            let AcquireReply { kind, now, entry, rest } = reply;
            if kind == scripts::LARGE {
                unsettled.item = None;
                match Box::pin(self.read_found(rest, claim, accept)).await? {
                    Ok(entry) => return Ok(Acquire::Found(entry)),
                    Err(other) => accept = other,
                }
                continue;
            }
            let fence = entry.as_ref().map(|seen| envelope::fence(&seen.sealed));
            let found = self.judge(entry, claim, &mut tags, kind == FOUND).await?;
            // If the next try fails, the lease of this one has no holder. A floor that is due is raised by the
            // next one, because the server's time is known now.
            if ledger.reassertions() != reassertions || ledger.is_floor_due() {
                continue;
            }
            let Some(acquired) = answer(kind, rest, found, claim, (term, now), tags.epochs())
            else {
                missing = if kind == scripts::LATE { LATE } else { UNREADABLE };
                accept = fence.map_or(accept, |than| Accept::Other { than });
                continue;
            };
            unsettled.item = None;
            // The tags of an entry were not read with it.
            if let Acquire::Found(entry) = &acquired
                && entry.epochs().is_empty()
            {
                self.keep(start, Some(Vec::new()), key, Some(entry));
            }
            return Ok(acquired);
        }
        Err(unanswered(missing, TAKING, key))
    }

    /// Asks once. Until there is an answer, the claim may have a lease that has no holder.
    async fn claim<'a>(
        &self,
        claim: &'a Claim,
        (term, accept): (Duration, Accept),
        unsettled: &mut Unsettled<'a>,
    ) -> Result<AcquireReply, StoreError> {
        let (digest, asked_at) = (claim.key().digest(), Instant::now());
        let request = self.acquire_request(claim, &digest, term, accept);
        let is_first = unsettled.item.replace(OutboxItem::Release(claim)).is_none();
        let replied = self.client.run(&request, AcquireReply::read).await;
        if is_first && !replied.as_ref().err().is_none_or(may_have_run) {
            unsettled.item = None;
        }
        let replied = replied?;
        self.client.with_clock(&digest, |clock| clock.note(asked_at, replied.now));
        Ok(replied)
    }

    fn acquire_request<'a>(
        &self,
        claim: &'a Claim,
        digest: &Digest,
        term: Duration,
        accept: Accept,
    ) -> RedisRequest<'a> {
        let trace = claim.trace().map_or("", TraceParent::as_str);
        let args = [
            [claim.token().as_bytes(), trace.as_bytes()].concat(),
            number(millis(term)),
            match accept {
                Accept::Fresh => b"1".to_vec(),
                Accept::Nothing => b"0".to_vec(),
                Accept::Other { than } => than.to_be_bytes().to_vec(),
            },
            self.client.mark(),
        ];
        let names = scripts::names(&self.client, digest);
        RedisRequest::script(&scripts::ACQUIRE, names, args, TAKING).of(claim.key()).lapsing()
    }

    /// Reads the entry that a claim has found, over the connection for large values. If it is over by now, or
    /// cannot be read, gives what the next try may accept.
    async fn read_found(
        &self,
        mut rest: ReplyFields,
        claim: &Claim,
        accept: Accept,
    ) -> Result<Result<Entry, Accept>, StoreError> {
        let key = claim.key();
        let Some((bytes, than)) = rest.whole().zip(rest.whole()) else {
            return Err(unanswered(UNREADABLE, TAKING, key));
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.tags.lookups.note_size(&key.digest(), bytes);
        let found = self.lookup(key, claim.tags()).await?;
        Ok(found.filter(|entry| accept.admits(entry)).ok_or(Accept::Other { than }))
    }

    /// What the tags have made of an entry in the reply to a claim. They were touched before.
    async fn judge(
        &self,
        entry: Option<Seen>,
        claim: &Claim,
        tags: &mut ReadTags,
        is_answer: bool,
    ) -> Result<Option<Entry>, StoreError> {
        let digest = claim.key().digest();
        let opened = entry.map(|seen| self.tags.lookups.open(seen, claim.key(), &digest));
        let Some(Ok(Some(entry))) = opened else { return Ok(None) };
        match self.tags.judge(entry, claim.tags(), tags, &digest).await {
            Err(error) if !is_answer => {
                // An entry whose tags cannot be read may have been invalidated.
                tracing::debug!(target: "bellwether::store", %error, "a stale entry is not used");
                Ok(None)
            }
            judged => judged,
        }
    }

    pub(super) async fn renew(
        &self,
        claim: &Claim,
        fence: u64,
        term: Duration,
    ) -> Result<Renew, StoreError> {
        let names = [self.client.names().name(&claim.key().digest(), ":lease")];
        let args = [claim.token().as_bytes().to_vec(), number(millis(term)), number(fence)];
        let request = RedisRequest::script(&scripts::RENEW, names, args, "renewing the lease");
        let read = |reply| Some(if is_done(reply)? { Renew::Held } else { Renew::Lost });
        self.client.run(&request.of(claim.key()).urgent(), read).await
    }

    /// Stores an entry. Pending invalidations supersede it, unless its lease was granted after them. One that
    /// is an expiry is re-asserted as that.
    pub(super) async fn commit(&self, lease: Lease, draft: Draft) -> Result<Settled, StoreError> {
        let mut unsettled = self.outbox.unsettled(Some(&lease.claim));
        let (ledger, key, digest) = (&self.outbox.ledger, lease.key(), lease.key().digest());
        let reassertions = ledger.reassertions();
        let tags = lease.claim.tags().iter().chain(draft.tags.iter());
        self.outbox.repeat_pending(Some(&digest), tags).await?;
        let Some(epochs) = self.tags.epochs_of(&lease, &draft).await? else {
            unsettled.item = None;
            // The lease blocks the key for nothing.
            return self.outbox.release(&lease.claim).await.map(|()| Settled::Superseded);
        };
        let stored_at = lease.granted_at.saturating_add(micros(draft.lease_age));
        let sealed = envelope::seal(&draft, &digest, lease.fence, stored_at, &epochs);
        self.tags.lookups.note_size(&digest, sealed.len());
        let args = [
            lease.claim.token().as_bytes().to_vec(),
            sealed,
            number(millis(draft.lifetimes.life())),
            number(lease.fence),
            number(lease.granted_at),
            number(u64::from(draft.invalidates)),
        ];
        let names = scripts::names(&self.client, &digest);
        let request =
            RedisRequest::script(&scripts::COMMIT, names, args, "storing the entry").urgent();
        let losses = ledger.losses();
        let is_stored = self.client.run(&request.of(key), is_done).await;
        // The push message about it may still be under way.
        ledger.end_copies(&WithdrawnDigest::Key(digest));
        let is_stored = is_stored?;
        unsettled.item = None;
        if is_stored && draft.invalidates {
            ledger.executed(WithdrawnDigest::Key(digest), Withdrawal::Invalidate, None, losses);
        }
        // An invalidation that the server has lost cannot supersede it there.
        match is_stored && ledger.reassertions() == reassertions {
            true => Ok(Settled::Done),
            false => Ok(Settled::Superseded),
        }
    }

    pub(super) async fn fail(&self, lease: Lease, failure: Failure) -> Result<(), StoreError> {
        let mut unsettled = self.outbox.unsettled(Some(&lease.claim));
        let digest = lease.key().digest();
        let names = [":lease", ":failed"].map(|suffix| self.client.names().name(&digest, suffix));
        let args = [
            lease.claim.token().as_bytes().to_vec(),
            failure::write(&failure),
            number(millis(failure.life)),
            number(lease.fence),
        ];
        let request =
            RedisRequest::script(&scripts::FAIL, names, args, "remembering a failure").urgent();
        self.client.run(&request.of(lease.key()), any).await?;
        unsettled.item = None;
        Ok(())
    }

    /// Notes the version of a key for the near tier. Call it before what is kept is repeated. So an
    /// invalidation that is kept later ends the version.
    fn start_read(&self, digest: &Digest) -> Option<ReadStart> {
        self.near.as_ref().and_then(|near| near.start_read(digest))
    }

    /// Keeps a near copy of what was read, if there is one and its tags have these versions.
    fn keep(
        &self,
        start: Option<ReadStart>,
        tags: Option<Vec<Version>>,
        key: &Key,
        entry: Option<&Entry>,
    ) {
        if let (Some(near), Some(start), Some(tags), Some(entry)) = (&self.near, start, tags, entry)
            && near.keep(start, tags, key, entry)
        {
            self.heartbeat.start(|| Arc::clone(near).beat(self.client.clone()));
        }
    }
}

/// The verbs of `Store`, counted and timed. A handle.
#[derive(Clone, Debug)]
pub(super) struct RedisServerStore(pub(super) Arc<StoreCore>);

impl RedisServerStore {
    pub(super) async fn look_up(
        &self,
        key: &Key,
        tags: &Tags,
    ) -> Result<Option<Entry>, StoreError> {
        let began = Instant::now();
        let found = self.0.lookup(key, tags).await;
        self.0.operations.ended(StoreOperation::Lookup, began, found)
    }
}

impl Store for RedisServerStore {
    fn peek(&self, key: &Key) -> Peek {
        let copy = self.0.near.as_ref().and_then(|near| near.find(key));
        copy.map_or(Peek::Unknown, Peek::Found)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.client.watch(key.digest())
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        let store = self.clone();
        Box::pin(async move { store.look_up(&key, &tags).await })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let began = Instant::now();
            let acquired = store.acquire(&claim, term, accept).await;
            store.operations.ended(StoreOperation::Acquire, began, acquired)
        })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        let store = Arc::clone(&self.0);
        let (claim, fence) = (lease.claim.clone(), lease.fence);
        Box::pin(async move {
            let began = Instant::now();
            let renewed = store.renew(&claim, fence, term).await;
            store.operations.ended(StoreOperation::Renew, began, renewed)
        })
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let began = Instant::now();
            let done = |()| Settled::Done;
            let (operation, settled) = match end {
                End::Commit(lease, draft) => {
                    (StoreOperation::Commit, store.commit(lease, draft).await)
                }
                End::Fail(lease, failure) => {
                    (StoreOperation::Fail, store.fail(lease, failure).await.map(done))
                }
                End::Abandon(claim) => {
                    (StoreOperation::Abandon, store.outbox.release(&claim).await.map(done))
                }
            };
            store.operations.ended(operation, began, settled)
        })
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let began = Instant::now();
            let (digest, key) = match &target {
                WithdrawalTarget::Key(key) => (WithdrawnDigest::Key(key.digest()), Some(key)),
                WithdrawalTarget::Tag(tag) => (WithdrawnDigest::Tag(tag.digest()), None),
            };
            let operation = match (digest, change) {
                (WithdrawnDigest::Key(_), Withdrawal::Invalidate) => StoreOperation::Invalidate,
                (WithdrawnDigest::Key(_), Withdrawal::Expire { .. }) => StoreOperation::Expire,
                (WithdrawnDigest::Tag(_), Withdrawal::Invalidate) => StoreOperation::InvalidateTag,
                (WithdrawnDigest::Tag(_), Withdrawal::Expire { .. }) => StoreOperation::ExpireTag,
            };
            let changed = store.outbox.withdraw(digest, change, key).await;
            store.operations.ended(operation, began, changed)
        })
    }
}

/// The answer to a claim that requested this term, at this time of the server, under these epochs. None if
/// the command was late, if the entry that was found cannot be used, and if the reply makes no sense.
pub(super) fn answer(
    kind: u64,
    mut rest: ReplyFields,
    entry: Option<Entry>,
    claim: &Claim,
    (term, now): (Duration, u64),
    epochs: Vec<TagEpoch>,
) -> Option<Acquire> {
    Some(match kind {
        FOUND => Acquire::Found(entry.filter(Entry::is_fresh)?),
        2 => {
            let remaining = Duration::from_millis(rest.left()?);
            let other = OtherLease::new(rest.whole()?, epochs);
            // The script gives what another process has written there.
            let trace = rest.bytes().flatten();
            let trace = trace.and_then(|trace| TraceParent::parse(str::from_utf8(&trace).ok()?));
            Acquire::Busy { other, remaining, stale: entry, trace }
        }
        3 => {
            let fence = rest.whole()?;
            let lease = Lease::granted(claim.clone(), term, fence, now, epochs);
            let failures = u32::try_from(rest.whole()?).ok()?;
            let probe = rest.bytes()?.as_deref().and_then(failure::read);
            Acquire::Lead { lease, stale: entry, failures, probe }
        }
        4 => {
            let failure = failure::read(&rest.bytes()??)?;
            let remaining = Duration::from_millis(rest.left()?);
            Acquire::Failed { failure, remaining, stale: entry }
        }
        _ => return None,
    })
}

/// Whether a request with this error may have been executed. One that was lost with its connection may
/// have been; when it was sent again, the server may not have been ready.
fn may_have_run(error: &StoreError) -> bool {
    use StoreErrorKind::{Malformed, NotReady, TimedOut, Unreachable};
    matches!(error.kind(), TimedOut | Unreachable | Malformed | NotReady)
}

fn unanswered((kind, why): NoAnswer, doing: &str, key: &Key) -> StoreError {
    StoreError::new(kind, format!("redis, {doing} of `{key}`: {why}"))
}

/// Why a request has no answer yet.
type NoAnswer = (StoreErrorKind, &'static str);

const REPLACED: NoAnswer = (StoreErrorKind::NotReady, "the server was replaced again and again");
const LATE: NoAnswer = (StoreErrorKind::TimedOut, "no answer within the timeout");
const UNREADABLE: NoAnswer = (StoreErrorKind::Malformed, "the reply makes no sense");

const LOOKING_UP: &str = "reading the entry";
const TAKING: &str = "taking the lease";

/// The default of [`RedisOptions::outage_ttl`](super::RedisOptions::outage_ttl).
pub(super) const OUTAGE_TTL: Duration = Duration::from_secs(1);

/// How often a request is sent while servers are replaced (as when slots of a cluster move one by one), while
/// their clocks are being set, while an entry is in its way, or until the life of one is known.
const TRIES: u32 = 16;
