//! bellwether: the same loader behind a [`ReadThroughLayer`].

use std::time::Duration;

use bellwether::store::Store;
use bellwether::{ConfigError, Key, MemoryStore, ReadThroughLayer, Wait};
use bellwether_redis::RedisOptions;
use tower::{ServiceBuilder, service_fn};

use super::Catalog;
use crate::Fault;
use crate::loader::Loader;
use crate::messages::Ask;

const ENTRIES: usize = 100_000;
/// For copies in the process.
const NEAR: usize = 16 * 1024 * 1024;
const TTL: Duration = Duration::from_secs(60);
/// Limits of the library. `--load-ms` may be longer, so it is added to them.
const WAIT: Duration = Duration::from_secs(5);
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn in_memory(loader: Loader) -> Result<Catalog, Fault> {
    Ok(protect(MemoryStore::new(ENTRIES), loader)?)
}

pub(super) async fn in_redis(url: &str, namespace: &str, loader: Loader) -> Result<Catalog, Fault> {
    let store = RedisOptions::new(url, namespace)?.near(NEAR).connect().await?;
    Ok(protect(store, loader)?)
}

fn protect(store: impl Store, loader: Loader) -> Result<Catalog, ConfigError> {
    let layer = ReadThroughLayer::builder(store, |ask: &Ask| Key::of("product").with(ask.sku))
        .ttl(TTL)
        .stale_while_revalidate(TTL)
        .stale_if_error(TTL * 10)
        .refresh_early(1.0)
        .wait(Wait::at_most(WAIT + loader.latency()))
        .load_timeout(LOAD_TIMEOUT + loader.latency())
        .build()?;
    let load = service_fn(move |ask| {
        let loader = loader.clone();
        async move { loader.load(ask).await }
    });
    let service = ServiceBuilder::new().map_err(Fault::from).layer(layer).service(load);
    Ok(Catalog::new(service))
}
