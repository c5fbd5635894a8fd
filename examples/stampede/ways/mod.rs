//! The ways to answer a burst: Tower services around the same loader.

mod polling;
mod protected;

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use serde::{Deserialize, Serialize};
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use crate::Fault;
use crate::catalog::Product;
use crate::loader::{LoadError, Loader};
use crate::messages::{Ask, Setup};

const ENTRIES: u64 = 100_000;
const TTL: Duration = Duration::from_secs(60);

/// The service that callers ask.
pub(crate) type Catalog = BoxCloneSyncService<Ask, Product, Fault>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    Unprotected,
    Moka,
    Polling,
    Bellwether,
}

impl Way {
    pub(crate) const ALL: [Self; 4] =
        [Self::Unprotected, Self::Moka, Self::Polling, Self::Bellwether];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unprotected => "unprotected",
            Self::Moka => "moka",
            Self::Polling => "polling",
            Self::Bellwether => "bellwether",
        }
    }

    /// What it does, in a few words.
    pub(crate) fn means(self) -> &'static str {
        match self {
            Self::Unprotected => "every caller queries",
            Self::Moka => "one load per process",
            Self::Polling => "Redis lock, retry: 25 ms",
            Self::Bellwether => "one load, pushed to all",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// The catalog as this way answers it, connected and with nothing cached.
    pub(crate) async fn open(self, setup: &Setup, loader: Loader) -> Result<Catalog, Fault> {
        let namespace = format!("stampede-{}", setup.run);
        match (self, setup.redis_url.as_deref()) {
            (Self::Unprotected, _) => Ok(unprotected(loader)),
            (Self::Moka, _) => Ok(moka(loader)),
            (Self::Polling, Some(url)) => polling::open(url, &namespace, loader).await,
            (Self::Polling, None) => Err("polling needs a Redis".into()),
            (Self::Bellwether, Some(url)) => protected::in_redis(url, &namespace, loader).await,
            (Self::Bellwether, None) => protected::in_memory(loader),
        }
    }
}

fn unprotected(loader: Loader) -> Catalog {
    Catalog::new(service_fn(move |ask| {
        let loader = loader.clone();
        async move { Ok(loader.load(ask).await?) }
    }))
}

/// The callers of a process share one load.
fn moka(loader: Loader) -> Catalog {
    let cache = Cache::builder().max_capacity(ENTRIES).time_to_live(TTL).build();
    Catalog::new(service_fn(move |ask: Ask| {
        let (cache, loader) = (cache.clone(), loader.clone());
        async move {
            let answer = cache.try_get_with(ask.sku, loader.load(ask)).await;
            answer.map_err(|fault: Arc<LoadError>| fault.into())
        }
    }))
}
