//! The ways to answer a burst: Tower services around the same loader.

mod polling;
mod protected;

use serde::{Deserialize, Serialize};
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use crate::Fault;
use crate::catalog::Product;
use crate::loader::Loader;
use crate::messages::{Ask, Setup};

/// The service that callers ask.
pub(crate) type Catalog = BoxCloneSyncService<Ask, Product, Fault>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    Unprotected,
    Polling,
    Bellwether,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Unprotected, Self::Polling, Self::Bellwether];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unprotected => "unprotected",
            Self::Polling => "polling",
            Self::Bellwether => "bellwether",
        }
    }

    /// What it does, in a few words.
    pub(crate) fn means(self) -> &'static str {
        match self {
            Self::Unprotected => "every caller queries the database",
            Self::Polling => "lock in Redis, retry after 200 ms",
            Self::Bellwether => "one load, waiters woken at once",
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
