//! `RedisStore`: entries and leases shared by a fleet.

mod check;
mod envelope;
mod health;
mod lane;
mod link;
mod looks;
mod names;
mod near;
mod operations;
mod options;
mod pulse;
mod reconnect;
mod record;
mod reply;
mod script;
mod server_clock;
mod stats;
mod trouble;
mod unacknowledged;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use self::options::RedisOptions;
pub use self::script::Source;
pub use self::stats::RedisStats;
pub use self::wire::{Call, Value, Wire};

use self::health::Health;
use self::lane::Lane;
use self::link::{Ears, Links};
use self::looks::Looks;
use self::names::Names;
use self::near::Near;
use self::reconnect::{Attempts, Moves};
use self::script::Scripts;
use self::server_clock::ServerClock;
use self::unacknowledged::{Asking, Unacknowledged};
use super::{Accept, Acquire, Answer, Claim, Commit, Draft, Entry, Failure, Lease};
use super::{Peek, Renew, Store, Watch, Watchers};
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter::jitter;
use crate::key::Key;

/// Entries and leases in a Redis (6.2 or later) or Valkey server, shared by a fleet.
///
/// A handle: clones share one set of connections. Every operation is one command and one round
/// trip: an `MGET` for looks, which callers who look at the same time share, and a script for
/// everything else. Whoever is told that a key is busy has, by that answer, subscribed to its
/// changes (RESP3 client tracking); where the server refuses that, losers find the value by their
/// pauses alone. With [`near`](RedisOptions::near), what was read is kept in this process too, and
/// looks ask for what is left of lives, by a script.
///
/// # When the server's clock is set
/// Redis counts expiry by its wall clock. An entry carries the server's time at which it was stored
/// as well, so a clock that is set back prolongs nothing. No entry is given out with more life than
/// it was stored with, and an entry from a later time than the clock shows counts as missing: it is
/// loaded again. A lease without a holder lapses within its term after the next caller asks for it, a
/// failure window ends at once or after its length at most, and invalidations hold. A clock that is
/// set forward ends entries, leases and failure windows early. Steps of less than a second are taken
/// for drift.
///
/// # What a user of the server must be allowed to do
/// `~bw:* +mget +get +getex +setrange +set +del +pttl +pexpire +time +evalsha +eval +hello +ping +client|tracking`.
/// With `+script|load` as well, the scripts are known before they are first needed.
///
/// # Errors
/// A command takes no longer than [`RedisOptions::timeout`], and an operation is one, or two now and
/// then. A command that timed out may have been executed all the same; the protocol is made for
/// that. A server that is down costs nothing after the first failures: see
/// [`RedisOptions::down_after`].
///
/// # Leases after an outage
/// A lease may be left by a command whose reply was lost. The store remembers its claim, up to
/// 10,000 of them, and gives the lease up as soon as the server answers again: in a task that is
/// there while there are such claims, at most until their leases have lapsed. Another claim of the
/// same process takes such a lease over meanwhile. A command that takes a lease and arrives when its
/// caller has stopped waiting, by the server's clock, takes none.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    options: RedisOptions,
    health: Health,
    names: Names,
    scripts: Arc<Scripts>,
    watchers: Watchers,
    /// Whether the server tells of changes.
    told: Arc<AtomicBool>,
    near: Option<Arc<Near>>,
    /// Plain hits go here, so that the server tracks only what somebody waits for. With a near tier
    /// nothing does.
    plain: Box<[Looks]>,
    /// Leases go here, looks that are copied, too, and changes come from here.
    hearing: Looks,
    clock: Arc<ServerClock>,
    unacknowledged: Unacknowledged,
    connects: Arc<AtomicU64>,
    pushes: Arc<AtomicU64>,
    unreadable: AtomicU64,
}

impl RedisStore {
    /// Connects to a `redis://` or `unix://` address, with the defaults of [`RedisOptions`].
    ///
    /// # Errors
    /// If it is no such address, or if the server cannot be reached or refuses.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = RedisOptions::new(url)
            .map_err(|error| StoreError::new(StoreErrorKind::Misconfigured, error.to_string()))?;
        options.connect().await
    }

    /// What it has counted since it was made.
    pub fn stats(&self) -> RedisStats {
        RedisStats {
            connects: self.0.connects.load(Ordering::Relaxed),
            outages: self.0.health.outages(),
            pushes: self.0.pushes.load(Ordering::Relaxed),
            unreadable: self.0.unreadable.load(Ordering::Relaxed),
        }
    }

    /// Whether the server tells of changes, as far as is known: it is found out on connecting.
    pub fn hears(&self) -> bool {
        self.0.told.load(Ordering::Relaxed)
    }

    /// Whether the server is taken to be down, because so many operations in a row have failed
    /// ([`RedisOptions::down_after`]). It is until an operation gets through, so a store that
    /// nobody uses stays so.
    pub fn is_down(&self) -> bool {
        self.0.health.is_down()
    }

    fn new(options: RedisOptions) -> Self {
        let names = Names::new(&options.namespace);
        let scripts = Arc::new(Scripts::new());
        let watchers = Watchers::default();
        let told = Arc::new(AtomicBool::new(options.tracking));
        let [connects, pushes] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let near = near(&options);
        let moves = Arc::new(Moves::default());
        let clock = Arc::new(ServerClock::default());
        let ears = Ears {
            names: names.clone(),
            watchers: watchers.clone(),
            near: near.clone(),
            open: Arc::clone(&told),
            heard: Arc::clone(&pushes),
        };
        let links = |ears| Links {
            client: options.client.clone(),
            protocol: options.protocol(),
            timeout: options.timeout,
            scripts: scripts.of_operations(),
            made: Arc::clone(&connects),
            attempts: Attempts::new(options.probe_every / 2),
            moves: Arc::clone(&moves),
            clock: Some(Arc::clone(&clock)),
            ears,
        };
        let looks =
            |ears| Looks::over(Lane::new(links(ears)), Arc::clone(&scripts), Arc::clone(&clock));
        let count = if near.is_some() { 0 } else { options.connections - 1 };
        let plain = (0..count).map(|_| looks(None)).collect();
        let hearing = looks(Some(ears));
        near.as_ref().inspect(|_| hearing.ask_for_lives());
        Self(Arc::new(Inner {
            health: Health::new(options.rules(jitter())),
            unacknowledged: Unacknowledged::new(options.timeout),
            options,
            names,
            scripts,
            watchers,
            told,
            near,
            plain,
            hearing,
            clock,
            connects,
            pushes,
            unreadable: AtomicU64::new(0),
        }))
    }
}

fn near(options: &RedisOptions) -> Option<Arc<Near>> {
    let silence = pulse::silence(options.timeout);
    options.near.map(|bytes| Arc::new(Near::new(bytes, options.near_ttl, silence)))
}

impl Store for RedisStore {
    fn peek(&self, key: &Key) -> Peek {
        let copy = self.0.near.as_ref().and_then(|near| near.find(key));
        copy.map_or(Peek::Unknown, Peek::Found)
    }

    fn watch(&self, key: &Key) -> Watch {
        if self.hears() { self.0.watchers.watch(key.digest()) } else { Watch::silent() }
    }

    fn look(&self, key: Key) -> Answer<Option<Entry>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.health.around(inner.look(&key)).await })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> Answer<Acquire> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let acquired = inner.acquire(&claim, term, accept);
            inner.acknowledged(Asking::ForLease, &claim, acquired).await
        })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> Answer<Renew> {
        let (inner, claim) = (Arc::clone(&self.0), lease.claim().clone());
        Box::pin(async move { inner.health.around(inner.renew(&claim, term)).await })
    }

    fn commit(&self, lease: Lease, draft: Draft) -> Answer<Commit> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let claim = lease.claim().clone();
            inner.acknowledged(Asking::ForRelease, &claim, inner.commit(lease, draft)).await
        })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let claim = lease.into_claim();
            inner.acknowledged(Asking::ForRelease, &claim, inner.fail(&claim, failure)).await
        })
    }

    fn abandon(&self, claim: Claim) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            inner.acknowledged(Asking::ForRelease, &claim, inner.abandon(&claim)).await
        })
    }

    fn invalidate(&self, key: Key) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.health.around(inner.invalidate(key, false)).await })
    }

    fn expire(&self, key: Key) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.health.around(inner.invalidate(key, true)).await })
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", &self.0.options)
            .field("hears", &self.hears())
            .field("stats", &self.stats())
            .finish()
    }
}
