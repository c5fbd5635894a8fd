//! Each lock in Redis works with the rights that its documentation lists, and names those that are
//! missing.

use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{
    FairLock, Lock, LockError, LockErrorKind, RedisLock, Redlock, ReentrantLock,
    conformance::Conformance,
};
use bellwether_testkit::servers::RedisServer;

use crate::world::options_of;

const OF_ALL: &str = "~bw:* +evalsha +eval";
const TRACKING: &str = "+client|tracking";
const SINGLE: &str = "+get +getex +set +pttl +time +del";
const FAIR: &str = "+get +getex +set +pexpire +pttl +time +del +zadd +zcard +zrange +zrangebyscore \
                    +zrank +zrem +zscore";
const REENTRANT: &str = "+getex +set +pexpire +pttl +time +del +hgetall +hset +hdel";
const REDLOCK: &str = "+get +getex +set +pttl +del";

fn user(server: &RedisServer, rights: &[&str]) -> RedisClientOptions {
    options_of(&server.url_of_user(rights))
}

/// Connects with these rights, with each of them missing, and with all of them.
async fn check<L: Lock + Clone>(
    servers: &[RedisServer],
    rights: &str,
    connect: impl AsyncFn(Vec<RedisClientOptions>) -> Result<L, LockError>,
) {
    let needed: Vec<_> = [OF_ALL, rights].iter().flat_map(|text| text.split_whitespace()).collect();
    let tracking: Vec<_> = TRACKING.split_whitespace().collect();
    let options = |rights: &[&str]| servers.iter().map(|server| user(server, rights)).collect();
    for missing in &needed {
        let others = needed.iter().chain(&tracking).copied().filter(|right| right != missing);
        let others: Vec<_> = others.collect();
        let Err(error) = connect(options(&others)).await else { panic!("{missing} is missing") };
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(missing.trim_start_matches('+')), "{missing}: {error}");
    }
    let all: Vec<_> = needed.into_iter().chain(tracking).collect();
    let lock = connect(options(&all)).await.expect("it has all rights");
    assert_eq!(Conformance::of(lock).run().await, []);
}

#[tokio::test]
async fn redis_lock_needs_the_rights_that_are_documented_and_names_what_is_missing() {
    let servers = [RedisServer::start()];
    check(&servers, SINGLE, async |mut nodes| RedisLock::connect(nodes.remove(0)).await).await;
}

#[tokio::test]
async fn fair_lock_needs_the_rights_that_are_documented_and_names_what_is_missing() {
    let servers = [RedisServer::start()];
    check(&servers, FAIR, async |mut nodes| FairLock::connect(nodes.remove(0)).await).await;
}

#[tokio::test]
async fn reentrant_lock_needs_the_rights_that_are_documented_and_names_what_is_missing() {
    let servers = [RedisServer::start()];
    let connect = async |mut nodes: Vec<_>| ReentrantLock::connect(nodes.remove(0)).await;
    check(&servers, REENTRANT, connect).await;
}

#[tokio::test]
async fn redlock_needs_the_rights_that_are_documented_and_names_what_is_missing() {
    let servers = [(); 3].map(|()| RedisServer::start());
    check(&servers, REDLOCK, async |nodes| Redlock::connect(nodes).await).await;
}
