//! `RedisStore`: entries and leases that a fleet shares, in Redis or Valkey.
//!
//! ```no_run
//! # async fn cache() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use bellwether::Cache;
//! use bellwether_redis::RedisStore;
//!
//! let store = RedisStore::connect("redis://127.0.0.1:6379", "shop").await?;
//! let items: Cache<u64, String> = Cache::builder("item", store).ttl(Duration::from_secs(60)).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] says what it costs, what it must be allowed, and how to size it.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `bb8` | no | `RedisPoolManager`, for pools |
//! | `tls` | no | `rediss://`: Redis by TLS (`rustls`), with certificates of your own |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod by_digest;
mod check;
mod envelope;
mod failure;
pub mod guide;
mod lookups;
mod near;
mod options;
mod outbox;
mod scripts;
mod stats;
mod store;
mod tag_value;
mod tags;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

#[cfg(feature = "bb8")]
pub use bellwether_redis_client::RedisPoolManager;
#[cfg(feature = "tls")]
pub use bellwether_redis_client::RedisTls;
pub use bellwether_redis_client::{
    CredentialsProvider, RedisClientOptions, RedisCredentials, RedisNodeStats,
};

pub use self::options::RedisOptions;
pub use self::stats::{NearStats, RedisStats, ReplayStats};

use self::outbox::ledger::KeepingRules;
use self::store::{OUTAGE_TTL, RedisServerStore, StoreCore};
use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, Lease, OutageStore, Peek, Renew, Settled, Store,
    StoreFuture, Tags, Watch, Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, StoreError};

/// Entries and leases in a Redis (6.2 or later) or Valkey server or cluster, shared by a fleet.
///
/// A handle: clones share one set of connections. Every operation is one command and one round
/// trip: an `MGET` for lookups, which concurrent callers share, and a script for everything else.
/// For a key with [tags](bellwether::Tag), the begin and the end of a load are two commands each. A
/// process that is told that a key is busy leaves its mark at the lease, and the script that ends the
/// lease publishes a message to it, with the entry if that has at most 16 KiB. With
/// [`near`](RedisOptions::near), this process also keeps copies of the entries that it reads. Such
/// lookups, and those of entries with stale windows or early refresh, are an `MGET` and a `TIME` in one
/// round trip.
///
/// # Names
/// A key has four names (Redis keys) in one hash slot: `bw:<namespace>:{<digest>}` for its entry, and
/// the same with `:lease`, `:watermark` and `:failed`. A [tag](bellwether::Tag) has one name in a slot of
/// its own, `bw:<namespace>:~tag:{<digest>}`. It holds 16 bytes, or 32 after an expiry over a spread,
/// and lives as long as the longest of its entries, and up to an hour longer; at least an hour after an
/// invalidation. Nothing lists the entries of a tag.
///
/// Scripts declare all names that they touch in their `KEYS`.
///
/// # When the server's clock is set
/// Redis counts expiry by its wall clock. An entry also carries the server's time at which it was
/// stored. So a clock that is set back prolongs nothing:
///
/// - No entry is served with more life than it was stored with.
/// - An entry that was stored or expired later than the clock shows counts as a miss, and is loaded again.
/// - A lease without a holder lapses within its term after the next caller requests it.
/// - A cooldown ends at once, or after its length at most.
/// - An entry whose tag was expired stays stale. One whose tag expires over a time becomes stale at once.
/// - Invalidations hold, with one gap: a process that is paused meanwhile between its load and its
///   commit ([`how_it_works`](bellwether::guide::how_it_works#late-writers-the-fencing-token)).
///
/// A clock that is set forward ends entries, leases and cooldowns early. For entries, steps of less
/// than a second are taken for drift.
///
/// # Permissions
/// `~bw:* &bw:* +mget +get +setrange +set +del +pttl +pexpire +time +evalsha +eval +ping +subscribe +publish`.
/// `connect` names all that are missing. Without `&bw:* +subscribe +publish`, waiters poll. A near cache needs
/// `+client|tracking` as well, a cluster `+cluster|slots +asking`, Sentinel `+role`, and a database other
/// than 0 `+select`.
///
/// # Errors
/// A command ends when the server is silent for [`RedisOptions::timeout`]. An operation is one command, and
/// rarely two; with [tags](bellwether::Tag), the epochs are another one. A command that timed out may
/// still have been executed, and the protocol allows for that. After the first failures, a server that
/// is down costs no time: see [`RedisOptions::down_after`].
///
/// # Without the server
/// While the server does not answer or refuses leases, lookups and leases are those of an
/// [`OutageStore`]: this process keeps what it loads for
/// [`RedisOptions::outage_ttl`]. A near copy is then a stale answer of its own, if a load fails within the
/// entry's `stale_if_error`. So a lookup or an acquire gives an error only with an `outage_ttl` of zero, or if
/// the server's reply makes no sense. Other operations give the server's error.
///
/// # Leases after an outage
/// A command whose reply was lost may have taken a lease. The store remembers up to 10,000 such
/// claims, for ten minutes at most, and releases the leases as soon as the server answers
/// again. A task does this. A command that arrives when its caller has stopped waiting, by the server's
/// clock, takes no lease.
///
/// # Invalidations that fail
/// An invalidation of a key or a tag that fails, or is dropped before it returns, is kept in this
/// process and repeated until it succeeds. Until then, this process serves nothing of that key or
/// tag: neither from a near copy, nor from the server when it answers again. Its error says so
/// ([`StoreError::is_pending`]). The last invalidations are also repeated after a failover, because the
/// promoted server may lack them. See [`RedisOptions::pending_invalidations`] and
/// [`RedisOptions::reassert_window`]. If the process ends, what it has kept is lost.
#[derive(Clone)]
pub struct RedisStore(OutageStore<RedisServerStore>);

impl RedisStore {
    /// Connects to an address, with a namespace and the defaults for everything else. See
    /// [`RedisOptions::new`] for both, and [`RedisOptions::connect`] for other options.
    ///
    /// # Errors
    /// If the address or the namespace is invalid, or for the reasons of [`RedisOptions::connect`].
    pub async fn connect(url: &str, namespace: &str) -> Result<Self, StoreError> {
        let client = RedisClientOptions::new(url, namespace)?;
        let name = client.namespace().into();
        let parts = StoreCore::new(client, name, None, KeepingRules::default())?;
        Self::of(parts, OUTAGE_TTL).checked().await
    }

    fn of(parts: StoreCore, outage_ttl: Duration) -> Self {
        let near = parts.near.clone();
        let server = RedisServerStore(Arc::new(parts));
        Self(OutageStore::with_copies(server, outage_ttl, move |key| {
            near.as_ref()?.find_unwatched(key)
        }))
    }

    fn parts(&self) -> &StoreCore {
        &self.0.primary().0
    }

    /// Connects now, and checks what the server permits.
    async fn checked(self) -> Result<Self, StoreError> {
        let StoreCore { client, near, .. } = self.parts();
        client.connecting(check::prepare(client, near.is_some())).await?;
        Ok(self)
    }

    /// Its state, and what it has done since it was made.
    pub fn stats(&self) -> RedisStats {
        self.parts().stats(self.0.stats())
    }

    /// How many connections it has opened, after a request to each server: the loss of one is noticed only if it is
    /// used.
    #[doc(hidden)]
    pub async fn opened(&self) -> u64 {
        let client = &self.parts().client;
        let probes = client.probes("probing the connection");
        join_all(probes.iter().map(|probe| client.run(probe, Some))).await;
        client.opened()
    }

    /// Waits until all invalidations that failed and are kept have been repeated, or for this long. Returns
    /// how many are left. Call it before the process ends: what is kept then is lost.
    ///
    /// # Cancel safety
    /// It only waits, so it may be dropped at any time.
    pub async fn drain(&self, limit: Duration) -> u64 {
        let until = Instant::now().checked_add(limit);
        loop {
            let left = self.stats().replay.pending;
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            // Without a runtime nothing is repeated.
            if left == 0 || is_over || Handle::try_current().is_err() {
                return left;
            }
            sleep(LOOKS_AGAIN).await;
        }
    }

    /// Whether the server reports changes to the near tier (client tracking). Until the first connection,
    /// this is what the options request. If it is false, the near tier keeps no copies.
    pub fn is_tracking(&self) -> bool {
        self.parts().client.is_tracked()
    }

    /// Whether the server, or any node of a cluster that owns slots, is taken to be down, because
    /// [`RedisOptions::down_after`] requests in a row have failed. This ends with the next request that is
    /// answered, so it stays true while the store is not used.
    pub fn is_down(&self) -> bool {
        self.parts().client.is_down()
    }
}

bellwether::stats_source! { RedisStore => RedisStats, |it| &it.parts().name }

impl Store for RedisStore {
    fn peek(&self, key: &Key) -> Peek {
        self.0.peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        let store = self.0.clone();
        Box::pin(async move {
            let asked = pin!(store.primary().look_up(&key, &tags));
            store.lookup_after(&key, &tags, asked).await
        })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.0.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.0.renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        self.0.settle(end)
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        self.0.withdraw(target, change)
    }
}

// Shows the address of the server, but neither user nor password.
bellwether::debug_fields! { RedisStore => |it|
    options = it.parts().client.options(), is_tracking = it.is_tracking(), stats = it.stats()
}

/// How often [`RedisStore::drain`] looks whether something is left. The outbox repeats at its own pace.
const LOOKS_AGAIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
