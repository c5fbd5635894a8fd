//! Loads that hang, failures behind stale answers, and limits that refuse callers.

use std::future::pending;
use std::io;
use std::time::Duration;

use bellwether::metrics::publish;
use bellwether::{Cache, ConfigError, MemoryStore, Wait};
use bellwether_testkit::exposition::Exposition;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{Alert, until_fired};

pub(super) const ALERTS: &[Alert] = &[
    ("BellwetherLoadsHang", "hung"),
    ("BellwetherServesOldAnswers", "old"),
    ("BellwetherRefreshesFail", "refreshed"),
    ("BellwetherLoadsQueue", "queued"),
    ("BellwetherRefusesCallers", "waiters"),
    ("BellwetherRefusesCallers", "flights"),
];

/// Longer than any test lasts.
const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone)]
struct Caches {
    hung: Cache<usize, u64>,
    queued: Cache<usize, u64>,
    old: Cache<usize, u64>,
    refreshed: Cache<usize, u64>,
    crowded: Cache<usize, u64>,
}

impl Caches {
    fn new() -> Result<Self, ConfigError> {
        let store = MemoryStore::new(1_000);
        let hung = Cache::builder("hung", store.clone()).ttl(HOUR).load_timeout(HOUR).build()?;
        let queued = Cache::builder("queued", store.clone()).ttl(HOUR).load_timeout(HOUR);
        let queued = queued.max_loads(1).wait(Wait::at_most(HOUR)).build()?;
        let short = |name| Cache::builder(name, store.clone()).ttl(Duration::from_millis(50));
        let old = short("old").stale_if_error(HOUR).build()?;
        let refreshed = short("refreshed").stale_while_revalidate(HOUR).build()?;
        let crowded = Cache::builder("crowded", store.clone()).ttl(HOUR);
        let crowded = crowded.max_waiters(1).max_flights(1).build()?;
        Ok(Self { hung, queued, old, refreshed, crowded })
    }

    fn publish(&self) {
        let Self { hung, queued, old, refreshed, crowded } = self;
        [hung, queued, old, refreshed, crowded].into_iter().for_each(publish);
    }

    /// Callers of two keys, while there may be one caller of one key.
    async fn crowd(&self, look: usize) {
        let load = async || {
            sleep(Duration::from_millis(200)).await;
            Ok::<_, io::Error>(1)
        };
        let keys = [2 * look, 2 * look, 2 * look + 1];
        let answers = join_all(keys.map(|key| self.crowded.get_or_load(key, load))).await;
        assert!(answers[0].is_ok() && answers[1..].iter().all(Result::is_err), "{answers:?}");
    }
}

#[tokio::test]
async fn the_alerts_fire_when_loads_hang_and_fail_and_when_limits_are_full() {
    let caches = Caches::new().expect("options");
    let program = Exposition::new();

    let hung = caches.hung.clone();
    tokio::spawn(async move { hung.get_or_load(1, pending::<io::Result<u64>>).await });
    for key in 1..3 {
        let queued = caches.queued.clone();
        tokio::spawn(async move { queued.get_or_load(key, pending::<io::Result<u64>>).await });
    }
    let aging = [&caches.old, &caches.refreshed];
    for cache in aging {
        let first = cache.get_or_load(1, async || Ok::<_, io::Error>(1)).await;
        assert_eq!(first.expect("an answer"), 1);
    }
    until_fired(
        async || vec![program.render(|| caches.publish())],
        ALERTS,
        async |look| {
            caches.crowd(look).await;
            for _ in 0..10 {
                let down = async || Err::<u64, _>(io::Error::other("the database is down"));
                for cache in aging {
                    assert_eq!(cache.get_or_load(1, down).await.expect("a stale answer"), 1);
                }
            }
        },
    )
    .await;
}
