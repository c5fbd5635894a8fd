//! An entry that is read often is loaded again before it expires (probabilistic early refresh).

use bellwether::{CacheStatus, MemoryStore};
use bellwether_testkit::caches::promises::an_early_refresh_is_one_load;
use bellwether_testkit::caches::{
    MINUTE, SECOND, answer, answers, ask, burst, layer, remembering_layer, settled, unprobed,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::sleep;
use tower::Layer;

use super::PLACES;
use crate::support::store::processes;

/// So early that it is due as soon as it is stored: with a load of ten seconds and the largest
/// beta, on average a thousand seconds before its end.
const AT_ONCE: f64 = 100.0;

#[tokio::test(start_paused = true)]
async fn an_early_refresh_delays_no_caller_and_is_one_load_in_the_fleet() {
    for place in PLACES {
        an_early_refresh_is_one_load(&processes(place, &MemoryStore::new(10))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_in_demand_never_runs_out() {
    for place in PLACES {
        let early = layer(place(&MemoryStore::new(10))).refresh_early(1.0).build().unwrap();
        let cached = early.layer(Loader::taking(SECOND));
        answer(&cached, 1).await;
        // By 100 requests in the time of a load, chance misses that time about once in 10^17 cycles.
        for _ in 0..MINUTE.as_secs() * 300 {
            sleep(SECOND / 100).await;
            let (_, status) = ask(&cached, 1).await.unwrap();
            assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_loaded_early_unless_it_is_asked_for() {
    for place in PLACES {
        let loader = Loader::taking(SECOND * 10);
        let cached = layer(place(&MemoryStore::new(10))).build().unwrap().layer(loader.clone());
        answer(&cached, 1).await;
        for _ in 0..59 {
            sleep(SECOND).await;
            assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
        }
        assert_eq!(loader.loads(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn while_early_refreshes_fail_fresh_entries_are_served_and_refreshes_back_off() {
    for place in PLACES {
        let loader = Loader::taking(SECOND * 10);
        let layer = unprobed(remembering_layer(place(&MemoryStore::new(10))));
        let cached =
            layer.ttl(MINUTE * 10).refresh_early(AT_ONCE).build().unwrap().layer(loader.clone());
        answer(&cached, 1).await;
        loader.ends_by(End::Fail);
        while loader.loads() < 3 || loader.running() > 0 {
            answer(&cached, 1).await;
            sleep(SECOND / 20).await;
        }
        for _ in 0..9 {
            for (_, status) in settled(burst(&cached, 1, 10)).await {
                assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
            }
            sleep(SECOND / 10).await;
        }
        assert_eq!(loader.loads(), 3);
    }
}
