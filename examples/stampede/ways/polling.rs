//! The usual lock: its holder loads, and the other callers sleep and look again.
//!
//! Each caller sends GET. On a miss it sends SET NX EX for a lock, with a token of its own. If it
//! gets the lock, it looks a second time, loads, SETs the value, and deletes the lock if the lock
//! still has its token. Otherwise it sleeps 25 ms and starts again. This also makes one load per
//! key, but no message wakes the others: they are late by up to a pause, and each of them sends
//! commands of its own.
//!
//! The comparison is about the algorithm, so polling has the same kind of connection as bellwether:
//! one multiplexed connection, cloned for all callers. A pool with a check-out for each command would
//! be slower. In a cluster, all its names are on one node.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, ExistenceCheck, Script, SetExpiry, SetOptions,
};
use tokio::time::sleep;
use tower::service_fn;
use uuid::Uuid;

use super::Catalog;
use crate::Fault;
use crate::catalog::Product;
use crate::loader::Loader;
use crate::messages::Ask;
use crate::server::url_of_owner;

const TTL_SECONDS: u64 = 60;
const PAUSE: Duration = Duration::from_millis(25);
/// The client's default of 500 ms would turn a long queue into errors.
const PATIENCE: Duration = Duration::from_secs(10);

const RELEASE: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
    return 0";

#[derive(Clone)]
struct Polling {
    connection: MultiplexedConnection,
    namespace: String,
    release: Script,
    loader: Loader,
    lock_seconds: u64,
}

pub(super) async fn open(url: &str, namespace: &str, loader: Loader) -> Result<Catalog, Fault> {
    // The braces keep all names in one slot.
    let namespace = format!("{{{namespace}:polling}}");
    let mut connection = connect(&url_of_owner(url, &namespace).await?).await?;
    let release = Script::new(RELEASE);
    release.prepare_invoke().load_async(&mut connection).await?;
    // If the lock expired during the load, there would be a second load.
    let lock_seconds = 10 + loader.latency().as_secs();
    let polling = Polling { connection, namespace, release, loader, lock_seconds };
    Ok(Catalog::new(service_fn(move |ask| polling.clone().answer(ask))))
}

async fn connect(url: &str) -> Result<MultiplexedConnection, Fault> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    Ok(Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

impl Polling {
    async fn answer(mut self, ask: Ask) -> Result<Product, Fault> {
        let entry = format!("{}:{}", self.namespace, ask.sku);
        let lock = format!("{entry}:lock");
        loop {
            if let Some(product) = self.read(&entry).await? {
                return Ok(product);
            }
            let token = Uuid::new_v4().to_string();
            if self.take(&lock, &token).await? {
                let filled = self.fill(&entry, ask).await;
                self.release(&lock, &token).await?;
                return filled;
            }
            sleep(PAUSE).await;
        }
    }

    async fn read(&mut self, entry: &str) -> Result<Option<Product>, Fault> {
        let text: Option<String> = self.connection.get(entry).await?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    async fn take(&mut self, lock: &str, token: &str) -> Result<bool, Fault> {
        let if_free = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::EX(self.lock_seconds));
        let taken: Option<String> = self.connection.set_options(lock, token, if_free).await?;
        Ok(taken.is_some())
    }

    async fn fill(&mut self, entry: &str, ask: Ask) -> Result<Product, Fault> {
        // The holder before us may have stored the value and released the lock since our GET.
        if let Some(product) = self.read(entry).await? {
            return Ok(product);
        }
        let product = self.loader.load(ask).await?;
        let text = serde_json::to_string(&product)?;
        let () = self.connection.set_ex(entry, text, TTL_SECONDS).await?;
        Ok(product)
    }

    async fn release(&mut self, lock: &str, token: &str) -> Result<(), Fault> {
        let () = self.release.key(lock).arg(token).invoke_async(&mut self.connection).await?;
        Ok(())
    }
}
