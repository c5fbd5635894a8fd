//! Spans: the load of a request belongs to its trace, and callers that wait for it follow from it.

mod late;

use std::convert::Infallible;
use std::time::Duration;

use bellwether::trace::TraceKeys;
use bellwether::{Cache, CacheStatus, Key, Lifetimes, MemoryStore};
use bellwether_testkit::caches::{
    Cached, JSON, MINUTE, SECOND, cached, idle, layer, put_for, settled,
};
use bellwether_testkit::loaders::Loader;
use bellwether_testkit::spans::{SpanSeen, Spans};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tower::{Layer, Service};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Instrument, Level, info_span};

use crate::support::store::{Faulty, local, remote};

type Place = fn(&MemoryStore) -> Faulty;

const PLACES: [Place; 2] = [local, remote];

fn begin(most: Level) -> (Spans, DefaultGuard) {
    let spans = Spans::up_to(most);
    (spans.clone(), set_default(spans))
}

type Asked = JoinHandle<bellwether_testkit::caches::Answered>;

/// As many requests at once, each in a span of its own.
fn ask_in_spans(cached: &Cached, callers: usize) -> Vec<Asked> {
    let one = |number| {
        let span = info_span!(parent: None, "request", number);
        tokio::spawn(cached.clone().call(1).with_status().instrument(span))
    };
    (0..callers).map(one).collect()
}

fn cache() -> Cache<u64, String> {
    let builder = Cache::builder("name", MemoryStore::new(10)).ttl(MINUTE);
    builder.stale_while_revalidate(MINUTE).build().expect("options")
}

/// A load that traces a query.
async fn load() -> Result<String, Infallible> {
    info_span!("query").in_scope(|| {});
    tokio::task::yield_now().await;
    info_span!("query").in_scope(|| {});
    Ok("Ada".to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_spans_of_a_load_have_the_request_that_opened_it_as_an_ancestor() {
    for level in [Level::DEBUG, Level::INFO] {
        let (spans, _default) = begin(level);
        let cache = cache();
        let request = cache.get_or_load(1, load).instrument(info_span!("request"));
        request.await.unwrap();
        for query in spans.named("query") {
            assert_eq!(spans.above(&query), ["cache.load", "request"]);
        }
        let loading = spans.only("cache.load");
        assert_eq!(loading.target(), "bellwether::load");
        let fields = ["cache", "key.kind", "why", "result"].map(|name| loading.field(name));
        assert_eq!(fields, ["name", "name", "miss", "succeeded"]);
        assert!(!format!("{:?}", loading.fields).contains('#'), "no digest of a key");
    }
}

/// The keys in the spans of a load and of its request.
async fn keys_in_spans(keys: TraceKeys) -> [[String; 3]; 2] {
    let (spans, _default) = begin(Level::DEBUG);
    let builder =
        Cache::builder("name", MemoryStore::new(10)).ttl(MINUTE).trace_keys(keys).name("names");
    let cache: Cache<(&str, Option<i32>, bool), String> = builder.build().expect("options");
    cache.get_or_load(("Ann\nLee", Some(-7), true), load).await.unwrap();
    ["cache.get", "cache.load"].map(|name| {
        let span = spans.only(name);
        ["key.kind", "key.digest", "key.plain"].map(|name| span.field(name).to_owned())
    })
}

#[tokio::test(start_paused = true)]
async fn spans_have_as_much_of_a_key_as_the_program_lets_out() {
    let key = Key::of("name").with("Ann\nLee").with(Some(-7)).with(true);
    let digest = &*key.digest().to_string();
    for (keys, fields) in [
        (TraceKeys::Kind, ["name", "", ""]),
        (TraceKeys::Digest, ["name", digest, ""]),
        (TraceKeys::Plain, ["name", digest, "name/Ann\\nLee/-7/true"]),
    ] {
        assert_eq!(keys_in_spans(keys).await, [fields; 2], "{keys:?}");
    }
}

/// The others of those spans: all but the ancestor of the load.
fn others(spans: &Spans, name: &str) -> Vec<SpanSeen> {
    let load = spans.only("cache.load");
    let mut above = vec![];
    let mut next = load.parent;
    while let Some(number) = next {
        above.push(number);
        next = spans.numbered(number).parent;
    }
    let mut others = spans.named(name);
    others.retain(|span| !above.contains(&span.number));
    others
}

#[tokio::test(start_paused = true)]
async fn every_waiter_follows_from_the_load_unless_that_is_its_child() {
    for (level, name, children) in [(Level::DEBUG, "cache.get", 0), (Level::INFO, "request", 1)] {
        for place in PLACES {
            let (spans, _default) = begin(level);
            let loader = Loader::gated();
            let cached = cached(place(&MemoryStore::new(10)), &loader);
            let mut asked = ask_in_spans(&cached, 50);
            loader.has_begun(1).await;
            // These join while the load runs.
            asked.extend(ask_in_spans(&cached, 50));
            idle().await;
            let running = spans.only("cache.load");
            loader.let_go(1);
            settled(asked).await;
            let load = spans.only("cache.load");
            let others = others(&spans, name);
            assert_eq!(others.len(), 100 - children);
            assert!(others.iter().all(|waiter| waiter.follows == [load.number]), "{others:?}");
            let all = spans.named(name);
            assert_eq!(all.iter().filter(|span| span.follows.is_empty()).count(), children);
            // Nothing of the waiters is kept with the load.
            assert_eq!((load.follows.len(), load.fields.len()), (0, 4));
            assert!(running.handles < 10, "{running:?}");
            idle().await;
            assert!(spans.open().is_empty(), "{:?}", spans.open());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_load_ends_with_it_though_its_answer_is_still_to_be_stored() {
    use crate::support::store::Operation;

    let (spans, _default) = begin(Level::DEBUG);
    let store = remote(&MemoryStore::new(10));
    let storing = store.on(Operation::Commit).hold();
    let loader = Loader::new();
    let cached = cached(store, &loader);
    let asked = ask_in_spans(&cached, 10);
    storing.reached().await;
    let load = spans.only("cache.load");
    assert_eq!((load.handles, load.field("result")), (0, "succeeded"), "{load:?}");
    storing.open();
    settled(asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_says_how_it_ended() {
    let (spans, _default) = begin(Level::DEBUG);
    let loader = Loader::taking(SECOND);
    let cached =
        layer(remote(&MemoryStore::new(10))).name("catalog").build().unwrap().layer(loader);
    let mut asked = ask_in_spans(&cached, 3);
    idle().await;
    let leaving = asked.remove(2);
    leaving.abort();
    settled(asked).await;
    let mut ended: Vec<_> = spans.named("cache.get");
    ended.sort_by_key(|span| span.field("outcome").to_owned());
    let of = |span: &SpanSeen| {
        ["cache", "outcome", "detail", "waited_ms"].map(|name| span.field(name).to_owned())
    };
    assert_eq!(of(&ended[0]), ["catalog", "collapsed", "local", "1000"]);
    assert_eq!(of(&ended[1]), ["catalog", "led", "stored", "1000"]);
    assert_eq!(of(&ended[2]), ["catalog", "left", "", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_hit_at_once_has_no_span() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    settled(ask_in_spans(&cached, 1)).await;
    let (spans, _default) = begin(Level::TRACE);
    let (_, status) = settled(ask_in_spans(&cached, 1)).await.remove(0);
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
    assert_eq!(spans.named("cache.get").len() + spans.named("cache.load").len(), 0);
    assert_eq!(spans.events(), 0);
}

/// A refresh outlives the request that triggered it.
#[tokio::test(start_paused = true)]
async fn a_refresh_in_the_background_has_no_parent_and_follows_from_its_trigger() {
    for (place, callers) in [(local as Place, 1), (remote, 1), (remote, 2)] {
        let (spans, _default) = begin(Level::INFO);
        let memory = MemoryStore::new(10);
        let lifetimes = Lifetimes::fresh_for(SECOND).stale_while_revalidate(MINUTE);
        put_for(&memory, 1, "42", JSON, lifetimes).await;
        sleep(SECOND).await;
        let loader = Loader::gated();
        let cached = layer(place(&memory))
            .stale_while_revalidate(MINUTE)
            .build()
            .unwrap()
            .layer(loader.clone());
        settled(ask_in_spans(&cached, callers)).await;
        loader.has_begun(1).await;
        let refresh = spans.only("cache.load");
        assert_eq!((refresh.parent, refresh.field("why")), (None, "revalidation"));
        assert_eq!(refresh.follows.len(), 1, "{callers}: {refresh:?}");
        assert_eq!(spans.numbered(refresh.follows[0]).name(), "request");
        // It keeps no request open.
        let open: Vec<_> = spans.open().iter().map(SpanSeen::name).collect();
        assert_eq!(open, ["cache.load"], "{callers}");
        loader.let_go(1);
        idle().await;
        assert!(spans.open().is_empty(), "{:?}", spans.open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_past_the_cache_is_a_child_of_its_request() {
    let (spans, _default) = begin(Level::DEBUG);
    let key_of = |_: &u64| None::<Key>;
    let layer =
        bellwether::ReadThroughLayer::builder(MemoryStore::new(10), key_of).build().unwrap();
    let mut cached = layer.layer(Loader::new());
    cached.call(1).instrument(info_span!("request")).await.unwrap();
    let load = spans.only("cache.load");
    assert_eq!((spans.above(&load), load.field("why")), (vec!["request"], "no_key"));
    assert!(spans.open().is_empty(), "{:?}", spans.open());
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_loaded_in_the_span_in_which_it_was_asked_for() {
    let (spans, _default) = begin(Level::INFO);
    let load = async |parts: Vec<u64>| {
        let name = load().await?;
        Ok::<_, Infallible>(parts.into_iter().map(|_| Ok(name.clone())).collect::<Vec<_>>())
    };
    let page = async { cache().get_or_load_many([1_u64, 2], load).await };
    for name in page.instrument(info_span!("page")).await {
        assert_eq!(name.unwrap(), "Ada");
    }
    for query in spans.named("query") {
        assert_eq!(spans.above(&query).last(), Some(&"page"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_without_a_ttl_stores_nothing_and_warns_once_unless_that_is_wanted() {
    let (spans, _default) = begin(Level::WARN);
    let builder = || Cache::<u64, String>::builder("context.name", MemoryStore::new(10));
    let [forgotten, wanted] = [builder().ttl(Duration::ZERO), builder().coalesce_only()];
    for (builder, warnings) in [(wanted, 0), (forgotten, 1)] {
        let cache = builder.build().expect("options");
        for part in 0..3 {
            cache.get_or_load(part, load).await.unwrap();
            assert_eq!(cache.get(part).await.unwrap(), None);
        }
        assert_eq!(spans.events(), warnings);
    }
}

/// What other processes are told, and the links that this one makes.
mod across_processes {
    use std::sync::{LazyLock, Mutex};

    use bellwether::trace::{TraceContext, TraceParent, set_trace_context};
    use tracing::Span;

    use super::*;

    /// A trace for each span, and all links: from which span, to which one.
    struct Tracer;

    static LINKS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

    impl TraceContext for Tracer {
        fn current(&self) -> Option<TraceParent> {
            let number = Span::current().id()?.into_u64();
            TraceParent::parse(&format!("00-{:032x}-{number:016x}-01", 7))
        }

        fn link(&self, load: &TraceParent) {
            let number = u64::from_str_radix(&load.as_str()[36..52], 16).unwrap();
            let waiter = Span::current().id().expect("a span").into_u64();
            LINKS.lock().unwrap().push((waiter, number));
        }
    }

    static SET: LazyLock<()> = LazyLock::new(|| set_trace_context(Tracer).unwrap());

    #[tokio::test(start_paused = true)]
    async fn waiters_of_other_processes_link_to_the_trace_of_the_leader() {
        LazyLock::force(&SET);
        assert!(set_trace_context(Tracer).is_err(), "once per process");
        let (spans, _default) = begin(Level::INFO);
        let memory = MemoryStore::new(10);
        let loader = Loader::gated();
        let leading = cached(remote(&memory), &loader);
        let leader = ask_in_spans(&leading, 1);
        loader.has_begun(1).await;
        let elsewhere = cached(remote(&memory), &loader);
        let mut waiters = ask_in_spans(&elsewhere, 5);
        idle().await;
        // These join while their flight waits.
        waiters.extend(ask_in_spans(&elsewhere, 5));
        idle().await;
        loader.let_go(1);
        for (_, status) in settled(waiters).await {
            assert!(matches!(status, CacheStatus::Collapsed { .. }), "{status:?}");
        }
        settled(leader).await;
        let requests = spans.named("request");
        let first = spans.numbered(spans.only("cache.load").parent.unwrap());
        let links = LINKS.lock().unwrap().clone();
        for request in requests.iter().filter(|request| request.number != first.number) {
            let ours: Vec<_> = links.iter().filter(|(from, _)| *from == request.number).collect();
            assert_eq!(ours, [&(request.number, first.number)]);
        }
        assert_eq!(requests.len(), 11);
    }
}

#[tokio::test(start_paused = true)]
async fn two_types_of_values_under_one_name_are_warned_of_once_per_cache() {
    let spans = Spans::up_to(Level::WARN);
    let _default = set_default(spans.clone());
    let store = MemoryStore::new(10);
    let names: Cache<u64, String> =
        Cache::builder("context.item", store.clone()).ttl(MINUTE).build().expect("options");
    let prices: Cache<u64, u64> =
        Cache::builder("context.item", store).ttl(MINUTE).build().expect("options");
    for part in 0..3 {
        names.get_or_load(part, load).await.unwrap();
        assert_eq!(prices.get(part).await.unwrap(), None);
        let price = prices.get_or_load(part, async || Ok::<_, Infallible>(7)).await;
        assert_eq!(price.unwrap(), 7);
    }
    assert_eq!(spans.events(), 1);
    names.get_or_load(0, load).await.unwrap();
    assert_eq!(spans.events(), 2);
}
