//! Spans of requests that end before their loads.

use bellwether::CacheErrorKind;
use bellwether_testkit::caches::kind_of;
use tokio::time::Instant;

use super::*;

/// A request of a second, whose load takes longer.
async fn hurried(store: Faulty) {
    let cache: Cache<u64, String> =
        Cache::builder("name", store).ttl(MINUTE).build().expect("options");
    let slow = async || {
        sleep(5 * SECOND).await;
        load().await
    };
    let hurried = cache.with_deadline(Instant::now() + SECOND);
    let asked = hurried.get_or_load(1, slow).instrument(info_span!("request")).await;
    assert_eq!(kind_of(&asked), CacheErrorKind::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_request_closes_at_its_deadline_though_the_load_goes_on() {
    for place in PLACES {
        let (spans, _default) = begin(Level::DEBUG);
        hurried(place(&MemoryStore::new(10))).await;
        let request = spans.only("cache.get");
        assert_eq!((request.handles, request.field("detail")), (0, "deadline"), "{request:?}");
        let load = spans.only("cache.load");
        assert_eq!((load.field("result"), request.follows), ("", vec![load.number]));
        sleep(5 * SECOND).await;
        assert_eq!(spans.above(&spans.named("query")[1]), ["cache.load", "request"]);
        assert!(spans.open().is_empty(), "{:?}", spans.open());
    }
}

/// Exporters take the time at which a span was left last for its end.
#[tokio::test(start_paused = true)]
async fn a_load_enters_no_span_of_a_request_that_has_ended() {
    for place in PLACES {
        let (spans, _default) = begin(Level::INFO);
        hurried(place(&MemoryStore::new(10))).await;
        let entered = spans.only("request").entered;
        sleep(5 * SECOND).await;
        assert_eq!((spans.only("request").entered, spans.named("query").len()), (entered, 2));
    }
}
