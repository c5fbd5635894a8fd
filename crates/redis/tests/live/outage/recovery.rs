//! A Redis that is back is in use again without any action.

use std::time::{Duration, Instant};

use bellwether_redis::RedisStore;
use bellwether_testkit::wait::within;
use tokio::time::sleep;

use super::{Site, lease, look, works_again};

/// Calls as usual until it is down, and then for as long as that two probes have failed.
async fn stays_down(store: &RedisStore) {
    let began = Instant::now();
    while !store.is_down() || began.elapsed() < Duration::from_secs(3) {
        let _ = look(store).await;
        let _ = lease(store).await;
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_paused_redis_is_in_use_within_a_second_of_its_return() {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.stop();
    stays_down(&store).await;
    site.server.resume();
    works_again(&store, Instant::now()).await;
}

#[tokio::test]
async fn a_redis_that_was_killed_is_in_use_within_a_second_of_its_return() {
    let mut site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.kill();
    stays_down(&store).await;
    site.server.restart();
    works_again(&store, Instant::now()).await;
    within(Duration::from_secs(60), || store.stats().is_subscribed).await;
}
