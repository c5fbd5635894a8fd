//! The state that the clones of a `RedisStore` share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::kept::KeptInvalidations;
use super::lookups::Lookups;
use super::messages::StoredMessages;
use super::near::{self, Near};
use super::options::RedisOptions;
use super::scripts::StoreScripts;
use super::stats::{RedisStats, RedisWakeUps};
use super::unacknowledged::Unacknowledged;
use bellwether::Digest;
use bellwether::stats::OperationCounters;
use bellwether::store::Watchers;
use bellwether_redis_client::{
    ClientSetup, RedisClient, ServerEvent, ServerObserver, SlotOwners, Tracking,
};

/// Aligned, so that it is apart in memory from the count of its owners, which each operation
/// changes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Inner {
    pub(super) client: RedisClient,
    pub(super) scripts: StoreScripts,
    pub(super) near: Option<Arc<Near>>,
    pub(super) lookups: Lookups,
    pub(super) unacknowledged: Unacknowledged,
    pub(super) kept: Arc<KeptInvalidations>,
    pub(super) unreadable: AtomicU64,
    pub(super) operations: OperationCounters,
}

/// What learns of the servers of a store.
#[derive(Debug)]
struct StoreObserver {
    near: Option<Arc<Near>>,
    kept: Arc<KeptInvalidations>,
}

impl ServerObserver for StoreObserver {
    fn note(&self, event: ServerEvent<'_>) {
        match event {
            ServerEvent::MayHaveLost { since, is_affected } => {
                self.kept.may_have_lost(since, is_affected);
            }
            event => _ = self.near.as_ref().inspect(|near| near.note(event)),
        }
    }
}

impl Inner {
    pub(super) fn new(options: RedisOptions) -> Self {
        let scripts = StoreScripts::new();
        let timeout = options.client.request_timeout();
        let owners = Arc::new(SlotOwners::new(options.is_cluster()));
        let near = options.near_tier().map(|(bytes, longest)| {
            Arc::new(Near::new(bytes, longest, near::silence(timeout), Arc::clone(&owners)))
        });
        let (rules, name) = (options.keeping, options.display_name());
        let watchers = Watchers::default();
        let kept = Arc::new(KeptInvalidations::new(rules, name, near.clone(), watchers.clone()));
        let tracking = if near.is_some() { Tracking::Copies } else { Tracking::Nothing };
        let observer = StoreObserver { near: near.clone(), kept: Arc::clone(&kept) };
        let setup = ClientSetup {
            scripts: scripts.of_operations(),
            watchers,
            reader: Some(Arc::new(StoredMessages(Arc::clone(&kept)))),
            tracking,
            observer: Some(Arc::new(observer)),
            reads_clock: true,
            owners: Some(owners),
        };
        let client = RedisClient::new(options.client, setup);
        let lookups = Lookups::new(client.clone(), scripts.lookup.clone());
        near.as_ref().inspect(|_| lookups.ask_for_time());
        let unacknowledged = Unacknowledged::new(timeout);
        let unreadable = AtomicU64::new(0);
        let operations = OperationCounters::default();
        Self { client, scripts, near, lookups, unacknowledged, kept, unreadable, operations }
    }

    pub(super) fn stats(&self) -> RedisStats {
        RedisStats {
            connects: self.client.attempts(),
            outages: self.client.outages(),
            pushes: self.client.pushes(),
            unreadable: self.unreadable.load(Ordering::Relaxed),
            operations: self.operations.operations(),
            operation_times: self.operations.times(),
            errors: self.operations.errors(),
            is_down: self.client.is_down(),
            replay: self.kept.stats(),
            wake_ups: self.wake_ups(),
            near: self.near.as_ref().map(|near| near.stats()),
            nodes: self.client.node_stats(),
        }
    }

    fn wake_ups(&self) -> RedisWakeUps {
        match self.client.is_subscribed() {
            true => RedisWakeUps::Messages,
            false => RedisWakeUps::Polling,
        }
    }

    /// How long one request may take.
    pub(super) fn timeout(&self) -> Duration {
        self.client.options().request_timeout()
    }

    pub(super) fn entry_name(&self, digest: &Digest) -> Vec<u8> {
        self.client.name(digest, "")
    }

    pub(super) fn lease_name(&self, digest: &Digest) -> Vec<u8> {
        self.client.name(digest, ":lease")
    }

    pub(super) fn tag_name(&self, tag: &Digest) -> Vec<u8> {
        self.client.unwatched_name("tag", tag)
    }

    pub(super) fn failed_name(&self, digest: &Digest) -> Vec<u8> {
        self.client.name(digest, ":failed")
    }

    /// All names of a key.
    pub(super) fn names(&self, digest: &Digest) -> Vec<Vec<u8>> {
        let watermark = self.client.name(digest, ":watermark");
        vec![self.entry_name(digest), self.lease_name(digest), watermark, self.failed_name(digest)]
    }
}
