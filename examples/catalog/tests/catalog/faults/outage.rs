//! A store that another program writes to, and one that takes no invalidations.

use std::io;
use std::time::Duration;

use bellwether::metrics::publish;
use bellwether::{Cache, Wait};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::exposition::Exposition;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{Alert, until_fired};

pub(super) const DAMAGED: &[Alert] =
    &[("BellwetherStoreUnreadable", "shared"), ("BellwetherValuesUnusable", "product")];

pub(super) const DOWN: &[Alert] = &[
    ("BellwetherInvalidationsFail", "product"),
    ("BellwetherInvalidationsPending", "shared"),
    ("BellwetherInvalidationsDropped", "shared"),
    ("BellwetherRefusesCallers", "loads"),
];

/// How many failed invalidations are kept.
const KEPT: usize = 20;

const HOUR: Duration = Duration::from_secs(3_600);

/// Writes other bytes to all names that the store uses.
const DAMAGE: &str = "for _, name in ipairs(redis.call('KEYS', 'bw:*')) do \
                      redis.call('SET', name, 'of another program') end";

async fn connect(redis: &RedisServer) -> RedisStore {
    let options = RedisOptions::new(&redis.url(), "test").expect("a URL");
    let options = options.timeout(Duration::from_secs(20));
    let options = options.pending_invalidations(KEPT).name("shared");
    options.connect().await.expect("a store")
}

#[tokio::test]
async fn the_alerts_fire_when_entries_are_damaged_and_when_invalidations_are_lost() {
    let mut redis = RedisServer::start();
    let store = connect(&redis).await;
    let cache = Cache::builder("product", store.clone()).ttl(HOUR).build().expect("options");
    let changed: Cache<usize, String> =
        Cache::builder("product", store.clone()).ttl(HOUR).build().expect("options");
    let narrow = Cache::builder("narrow", store.clone()).ttl(HOUR).max_loads(1);
    let narrow = narrow.wait(Wait::at_most(Duration::from_millis(200))).build().expect("options");
    let program = Exposition::new();
    let metrics = async || {
        vec![program.render(|| {
            publish(&store);
            [&cache, &narrow].into_iter().for_each(publish);
        })]
    };

    until_fired(&metrics, DAMAGED, async |_| {
        // A damaged entry is a miss: it is loaded and stored again.
        let answer = cache.get_or_load(1, async || Ok::<_, io::Error>(1)).await;
        assert_eq!(answer.expect("an answer"), 1);
        redis.command(&["EVAL", DAMAGE, "0"]);
        // So is one of another type.
        changed.get_or_load(1, async || Ok::<_, io::Error>("one".to_owned())).await.expect("one");
        let answer = cache.get_or_load(1, async || Ok::<_, io::Error>(1)).await;
        assert_eq!(answer.expect("an answer"), 1);
    })
    .await;

    redis.kill();
    until_fired(&metrics, DOWN, async |look| {
        let handle = cache.handle();
        for key in 0..2 * KEPT {
            handle.invalidate(&cache.key(key)).await.expect_err("the store is down");
        }
        let load = async || {
            sleep(Duration::from_millis(500)).await;
            Ok::<_, io::Error>(1)
        };
        let keys = (1..4).map(|key| 1_000 * key + look);
        join_all(keys.map(|key| narrow.get_or_load(key, load))).await;
    })
    .await;
}
