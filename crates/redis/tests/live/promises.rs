//! Promises to a fleet that are kept in another way over a server than in a `MemoryStore`.

use std::sync::Arc;
use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Failure, Lease, Store};
use bellwether::{FailureCause, Tag};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::promises::{
    Fleet, a_cooldown_ends_in_the_fleet, a_stale_answer_is_replaced_by_one_load,
    an_early_refresh_is_one_load, an_invalidated_tag_outdates_a_put, not_found_is_shared,
    waiters_get_what_was_put,
};
use bellwether_testkit::servers::RedisServer;
use redis::Commands;
use tokio::time::timeout;

use crate::catalog::{key, options};

const MINUTE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

/// How a process learns of changes.
type Way = fn(RedisOptions) -> RedisOptions;

/// By client tracking, or by messages.
const WAYS: [Way; 2] = [|options| options, RedisOptions::resp2];

async fn store(server: &RedisServer, way: Way) -> RedisStore {
    let options = options(server).timeout(PATIENCE);
    way(options).connect().await.expect("a store")
}

/// Processes over a server of their own.
async fn fleet(ways: impl IntoIterator<Item = Way>) -> (RedisServer, Fleet) {
    let server = RedisServer::start();
    let mut fleet: Fleet = Vec::new();
    for way in ways {
        fleet.push(Arc::new(store(&server, way).await));
    }
    (server, fleet)
}

#[tokio::test]
async fn an_invalidation_ends_the_cooldown_in_the_fleet_and_in_the_process() {
    for ways in [WAYS, [WAYS[0]; 2], [WAYS[1]; 2], [WAYS[1], WAYS[0]]] {
        let (_server, fleet) = fleet(ways).await;
        a_cooldown_ends_in_the_fleet(&fleet, Duration::from_millis(900)).await;
    }
}

#[tokio::test]
async fn an_invalidation_of_its_tag_that_overtakes_the_commit_of_a_put_leaves_nothing() {
    for way in WAYS {
        let (_server, fleet) = fleet([way]).await;
        an_invalidated_tag_outdates_a_put(Arc::clone(&fleet[0]), |_| ()).await;
    }
}

#[tokio::test]
async fn an_invalidation_of_its_tag_that_redis_forgets_leaves_nothing_of_a_put_either() {
    for way in WAYS {
        let (server, fleet) = fleet([way]).await;
        let forget = |tag: &Tag| {
            let client = redis::Client::open(server.url()).expect("a client");
            let mut connection = client.get_connection().expect("a connection");
            let name = format!("bw:live:~tag:{{{}}}", tag.digest());
            assert_eq!(connection.del(name), Ok(1));
        };
        an_invalidated_tag_outdates_a_put(Arc::clone(&fleet[0]), forget).await;
    }
}

#[tokio::test]
async fn a_fleet_loads_a_stale_answer_again_once() {
    let (_server, fleet) = fleet(WAYS.into_iter().chain(WAYS)).await;
    a_stale_answer_is_replaced_by_one_load(&fleet).await;
}

#[tokio::test]
async fn an_early_refresh_delays_no_caller_and_is_one_load_in_the_fleet() {
    let (_server, fleet) = fleet(WAYS.into_iter().chain(WAYS)).await;
    an_early_refresh_is_one_load(&fleet).await;
}

#[tokio::test]
async fn not_found_is_an_answer_that_all_callers_of_the_fleet_share() {
    let (_server, fleet) = fleet(WAYS.into_iter().chain(WAYS)).await;
    not_found_is_shared(&fleet).await;
}

#[tokio::test]
async fn waiters_of_other_processes_get_what_was_put() {
    for way in WAYS {
        let (_server, fleet) = fleet([way, way]).await;
        waiters_get_what_was_put(&fleet).await;
    }
}

async fn acquire(store: &RedisStore) -> Acquire {
    store.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await.expect("an answer")
}

async fn fail(store: &RedisStore, lease: Lease) {
    let failure = Failure::new(FailureCause::Error, 2, MINUTE).with_message("out of order");
    store.fail(lease, failure).await.expect("an answer");
}

#[tokio::test]
async fn the_end_of_a_cooldown_is_told_by_a_full_server() {
    for way in WAYS {
        let server = RedisServer::start();
        let (here, there) = (store(&server, way).await, store(&server, way).await);
        let Acquire::Lead { lease, .. } = acquire(&here).await else { panic!("no lease") };
        fail(&here, lease).await;
        let mut watch = there.watch(&key(1));
        // Twice, since the first leaves a mark that is no part of the message.
        for _ in 0..2 {
            let Acquire::Failed { failure, .. } = acquire(&there).await else {
                panic!("no failure")
            };
            assert_eq!(&*failure.message, "out of order");
        }
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        here.invalidate(key(1)).await.expect("an answer");
        timeout(PATIENCE, watch.changed()).await.expect("a message");
    }
}
