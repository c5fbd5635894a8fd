//! While a load is slow, the stale answer is served.

use bellwether::{MemoryStore, StaleReason, WhenAbandoned};
use bellwether_testkit::caches::{Cached, SECOND, answer, answers, burst, settled};
use bellwether_testkit::loaders::Loader;
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::{PLACES, Place, stale_if_error, surviving, why};

/// A load is slow after a second, and takes four.
async fn slow(place: Place) -> (Cached, Loader) {
    let loader = Loader::taking(SECOND * 4);
    let layer = surviving(place(&stale_if_error().await)).slow_load(SECOND).build().unwrap();
    (layer.layer(loader.clone()), loader)
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_once_the_load_is_slow() {
    for place in PLACES {
        let (cached, _) = slow(place).await;
        let began = Instant::now();
        let ended = settled(burst(&cached, 1, 100)).await;
        assert!(ended.iter().all(|ended| why(ended) == StaleReason::LoadSlow));
        assert_eq!(began.elapsed().as_millis(), 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_joins_a_slow_load_waits_no_longer_than_an_earlier_one() {
    for place in PLACES {
        let (cached, loader) = slow(place).await;
        let mut asked = burst(&cached, 1, 10);
        loader.has_begun(1).await;
        let began = Instant::now();
        sleep(SECOND / 2).await;
        asked.extend(burst(&cached, 1, 10));
        assert!(settled(asked).await.iter().all(|ended| why(ended) == StaleReason::LoadSlow));
        assert!(began.elapsed() <= SECOND * 3 / 2, "they waited {:?}", began.elapsed());
        let began = Instant::now();
        let ended = settled(burst(&cached, 1, 10)).await;
        assert!(ended.iter().all(|ended| why(ended) == StaleReason::LoadSlow));
        assert!(began.elapsed() <= SECOND, "they waited {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_load_goes_on_and_is_stored() {
    for (place, when_abandoned) in PLACES
        .into_iter()
        .flat_map(|at| [WhenAbandoned::Finish, WhenAbandoned::Cancel].map(|when| (at, when)))
    {
        let loader = Loader::taking(SECOND * 4);
        let layer = surviving(place(&stale_if_error().await)).slow_load(SECOND);
        let cached = layer.when_abandoned(when_abandoned).build().unwrap().layer(loader.clone());
        settled(burst(&cached, 1, 10)).await;
        sleep(SECOND * 4).await;
        assert_eq!((answer(&cached, 1).await, loader.loads()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_not_slow_is_waited_for() {
    for place in PLACES {
        let layer = surviving(place(&stale_if_error().await)).slow_load(SECOND).build().unwrap();
        let cached = layer.layer(Loader::taking(SECOND / 2));
        assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_load_is_waited_for_where_nothing_is_stale() {
    for place in PLACES {
        let layer = surviving(place(&MemoryStore::new(10))).slow_load(SECOND).build().unwrap();
        let cached = layer.layer(Loader::taking(SECOND * 4));
        assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    }
}
