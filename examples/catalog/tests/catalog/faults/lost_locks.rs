//! Locks that a server forgets, and renewals that it does not answer.

use std::time::{Duration, Instant};

use bellwether::Key;
use bellwether::metrics::publish;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{Locks, RedisLock};
use bellwether_testkit::exposition::Exposition;
use bellwether_testkit::servers::RedisServer;
use tokio::time::sleep;

use super::{Alert, until_fired};

pub(super) const ALERTS: &[Alert] =
    &[("BellwetherLocksLost", "forgotten"), ("BellwetherLockRenewalsFail", "unanswered")];

/// A third of it is the time until the first renewal.
const LEASE: Duration = Duration::from_secs(3);

/// How long a loss may take to be noticed. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(60);

fn locks(name: &'static str, redis: &RedisServer, timeout: Duration) -> Locks<RedisLock> {
    let options = RedisClientOptions::new(&redis.url(), "test").expect("a URL");
    let options = options.timeout(timeout);
    Locks::builder(RedisLock::connect_lazily(options).expect("options"))
        .name(name)
        .lease(LEASE)
        .build()
        .expect("a lease")
}

#[tokio::test]
async fn the_alerts_fire_when_locks_are_forgotten_and_when_renewals_are_not_answered() {
    let [forgetful, stalling] = [RedisServer::start(), RedisServer::start()];
    let forgotten = locks("forgotten", &forgetful, PATIENCE);
    let unanswered = locks("unanswered", &stalling, LEASE / 10);
    let program = Exposition::new();
    let metrics =
        async || vec![program.render(|| [&forgotten, &unanswered].into_iter().for_each(publish))];
    until_fired(metrics, ALERTS, async |look| {
        let key = Key::of("order").with(look);
        tokio::join!(forget(&forgotten, &key, &forgetful), stall(&unanswered, &key, &stalling));
    })
    .await;
}

/// The server forgets a lock that is held.
async fn forget(locks: &Locks<RedisLock>, key: &Key, server: &RedisServer) {
    let guard = locks.lock(key).await.expect("the lock");
    server.command(&["FLUSHALL"]);
    let deadline = Instant::now() + PATIENCE;
    while !guard.is_lost() {
        assert!(Instant::now() < deadline, "the loss is noticed");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The server does not answer the first renewals of a lock that is held.
async fn stall(locks: &Locks<RedisLock>, key: &Key, server: &RedisServer) {
    // On a busy machine, or while the breaker is still open, there is no lock: the next one is tried.
    let Ok(_held) = locks.lock(key).await else { return };
    server.stop();
    sleep(LEASE / 3 * 2).await;
    server.resume();
}
