//! The usual lock: the winner loads, the losers sleep and look again.
//!
//! Per key and caller: GET; if nothing is there, SET NX EX of a lock with a token of one's own; who
//! got it looks a second time, loads, SETs the value and deletes the lock if the token in it is
//! still theirs; who did not sleeps 200 ms and begins again. It has one load per key as well, but
//! nobody tells the losers: they are late by up to a pause, and each of them asks Redis for itself.
//!
//! So that only the algorithm is compared, it gets a connection as good as bellwether's: one
//! multiplexed connection of a `bb8-redis` pool, cloned for all callers. A checkout for every
//! command, with bb8's PING before each, would be slower.

use std::time::Duration;

use bb8_redis::{RedisConnectionManager, bb8};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions};
use tokio::time::sleep;
use tower::service_fn;
use uuid::Uuid;

use super::Catalog;
use crate::Fault;
use crate::catalog::Product;
use crate::loader::Loader;
use crate::messages::Ask;

const TTL_SECONDS: u64 = 60;
const PAUSE: Duration = Duration::from_millis(200);
/// The client's own 500 ms would make errors of a long queue.
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
    let mut connection = connect(url).await?;
    let release = Script::new(RELEASE);
    release.prepare_invoke().load_async(&mut connection).await?;
    // A lock that ran out during the load would be a second load.
    let lock_seconds = 10 + loader.latency().as_secs();
    let polling = Polling {
        connection,
        namespace: format!("{namespace}:polling"),
        release,
        loader,
        lock_seconds,
    };
    Ok(Catalog::new(service_fn(move |ask| polling.clone().answer(ask))))
}

async fn connect(url: &str) -> Result<MultiplexedConnection, Fault> {
    let manager = RedisConnectionManager::new(url)?;
    let pool = bb8::Pool::builder().max_size(1).test_on_check_out(false).build(manager).await?;
    let mut connection = pool.get().await?.clone();
    connection.set_response_timeout(PATIENCE);
    Ok(connection)
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
        // The winner before us may have stored the value and given the lock back since we looked.
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
