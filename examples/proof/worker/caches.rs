//! The caches of a worker: each kind, over both of its stores.

use std::time::Duration;

use bellwether::{BoxError, Cache, ConfigError};
use bellwether_redis::{RedisOptions, RedisStore};

use super::checker::NEAR;
use crate::kinds::{CHANGING, GROUPS, Kind, RowKey, tag};
use crate::row::Row;

const NAMESPACE: &str = "proof";
const NEAR_BYTES: usize = 32 << 20;

/// All caches, by store and kind.
pub(super) struct Caches {
    by_store: [OfStore; 2],
}

struct OfStore {
    store: RedisStore,
    plain: Vec<Cache<u64, Row>>,
    /// The tagged kind, with the tag of each group.
    tagged: Vec<Cache<u64, Row>>,
}

impl Caches {
    pub(super) fn connect(url: &str) -> Result<Self, BoxError> {
        // The promises are those of the server. Without it, a process may serve its own loads for a second.
        let options = RedisOptions::new(url, NAMESPACE)?.outage_ttl(Duration::ZERO);
        let near = options.clone().near(NEAR_BYTES).name("near");
        Ok(Self {
            by_store: [
                OfStore::new(options.connect_lazily()?)?,
                OfStore::new(near.connect_lazily()?)?,
            ],
        })
    }

    pub(super) fn of(&self, store: usize, key: RowKey) -> &Cache<u64, Row> {
        let caches = &self.by_store[store];
        match (key.kind, key.group()) {
            (Kind::Tagged, Some(group)) => &caches.tagged[group as usize],
            (kind, _) => &caches.plain[kind.index()],
        }
    }

    /// The store without near copies.
    pub(super) fn plain_store(&self) -> RedisStore {
        self.by_store[0].store.clone()
    }

    /// Waits until no failed invalidation is left to be repeated.
    pub(super) async fn drain(&self, limit: Duration) {
        for OfStore { store, .. } in &self.by_store {
            store.drain(limit).await;
        }
    }
}

impl OfStore {
    fn new(store: RedisStore) -> Result<Self, BoxError> {
        let kinds = CHANGING.into_iter().chain([Kind::Burst]);
        let plain =
            kinds.map(|kind| kind.cache(store.clone())).collect::<Result<Vec<_>, ConfigError>>()?;
        let tagged = &plain[Kind::Tagged.index()];
        let tagged = (0..GROUPS).map(|group| tagged.tagged([tag(Kind::Tagged, group)]));
        let tagged = tagged.collect();
        Ok(Self { store, plain, tagged })
    }
}

const _: () = assert!(NEAR == 1, "the second store is the one with near copies");
