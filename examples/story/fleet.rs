//! The processes, and what each of them caches with.

use std::sync::Arc;
use std::time::Duration;

use bellwether::store::{OutageStore, StoreErrorKind};
use bellwether::{BoxError, Cache, CacheStatus, MemoryStore};
use bellwether_test::faulty::FaultyStore;

use crate::database::Database;

const PROCESSES: usize = 4;

/// The product whose price is asked for.
const SKU: u64 = 42;

/// How long a price is fresh.
const TTL: Duration = Duration::from_secs(60);

/// How long it is fresh in a process whose store is down: the default of a `RedisStore`.
const OUTAGE_TTL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stores {
    /// There is no cache: each request is a query.
    None,
    /// Each process has its own.
    Own,
    /// Processes share one, as they do with Redis, and nothing else.
    Shared,
}

/// What the processes are built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    stores: Stores,
    stale: Duration,
    early: Option<f64>,
}

impl Fleet {
    pub(crate) fn new(stores: Stores) -> Self {
        Self { stores, stale: Duration::ZERO, early: None }
    }

    pub(crate) fn stale_while_revalidate(self, stale: Duration) -> Self {
        Self { stale, ..self }
    }

    pub(crate) fn refresh_early(self, factor: f64) -> Self {
        Self { early: Some(factor), ..self }
    }

    /// Processes that have cached nothing yet, over an idle database.
    pub(crate) fn start(self) -> Vec<Process> {
        let database = Arc::<Database>::default();
        let shared = MemoryStore::new(100);
        let process = || {
            let memory = match self.stores {
                Stores::Shared => shared.clone(),
                Stores::None | Stores::Own => MemoryStore::new(100),
            };
            let store = FaultyStore::new(memory).remote();
            let cache = (!matches!(self.stores, Stores::None)).then(|| self.cache(store.clone()));
            Process { database: Arc::clone(&database), store, cache }
        };
        (0..PROCESSES).map(|_| process()).collect()
    }

    fn cache(self, store: FaultyStore<MemoryStore>) -> Cache<u64, usize> {
        let cache = Cache::builder("price", OutageStore::new(store, OUTAGE_TTL))
            .ttl(TTL)
            .jitter(0.0)
            .stale_while_revalidate(self.stale);
        let cache = match self.early {
            Some(factor) => cache.refresh_early(factor),
            None => cache,
        };
        cache.build().expect("options that fit together")
    }
}

/// One of the processes.
#[derive(Clone)]
pub(crate) struct Process {
    database: Arc<Database>,
    /// Its connection to the store.
    store: FaultyStore<MemoryStore>,
    cache: Option<Cache<u64, usize>>,
}

impl Process {
    /// The price, and how the answer came about if there is a cache.
    pub(crate) async fn price(&self) -> (Result<usize, BoxError>, Option<CacheStatus>) {
        let database = Arc::clone(&self.database);
        let load = async move || database.query().await;
        match &self.cache {
            Some(cache) => {
                let (price, status) = cache.get_or_load(SKU, load).with_status().await;
                (price.map_err(BoxError::from), Some(status))
            }
            None => (load().await.map_err(BoxError::from), None),
        }
    }

    /// Raises the price, as a handler of a request does.
    pub(crate) async fn raise_price(&self) -> Result<(), BoxError> {
        let database = Arc::clone(&self.database);
        let write = async move { database.raise().await };
        match &self.cache {
            Some(cache) => drop(cache.change(SKU, write).await?),
            None => write.await?,
        }
        Ok(())
    }

    pub(crate) fn lose_store(&self) {
        self.store.on_any().fail(StoreErrorKind::Unreachable);
    }

    pub(crate) fn find_store(&self) {
        self.store.heal();
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}
