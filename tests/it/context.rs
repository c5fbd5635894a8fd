//! A loader runs in the tracing span of the request that opened its load.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether::{Cache, MemoryStore};
use bellwether_testkit::caches::{MINUTE, idle};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Event, Instrument, Level, Metadata, Span, Subscriber, info_span};
use tracing_core::span::Current;

/// A subscriber that knows in which span the code runs. Tests of one thread use it.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    all: Vec<&'static Metadata<'static>>,
    entered: Vec<Id>,
    warnings: usize,
}

impl Spans {
    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || *metadata.level() == Level::WARN
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        self.with(|known| {
            known.all.push(attributes.metadata());
            Id::from_u64(known.all.len() as u64)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.with(|known| known.warnings += 1);
    }

    fn enter(&self, span: &Id) {
        self.with(|known| known.entered.push(span.clone()));
    }

    fn exit(&self, span: &Id) {
        self.with(|known| {
            let at = known.entered.iter().rposition(|entered| entered == span);
            known.entered.remove(at.expect("it was entered"));
        });
    }

    fn current_span(&self) -> Current {
        self.with(|known| match known.entered.last() {
            Some(id) => {
                let metadata = known.all[id.into_u64() as usize - 1];
                Current::new(id.clone(), metadata)
            }
            None => Current::none(),
        })
    }
}

/// The name of the span in which this is called.
fn span_name() -> &'static str {
    Span::current().metadata().map_or("none", |metadata| metadata.name())
}

fn cache() -> Cache<String> {
    let builder = Cache::builder("name", MemoryStore::new(10)).ttl(MINUTE);
    builder.stale_while_revalidate(MINUTE).build()
}

async fn load() -> Result<String, Infallible> {
    tokio::task::yield_now().await;
    Ok(span_name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_load_runs_in_the_span_of_the_request_that_opened_it() {
    let _default = set_default(Spans::default());
    let cache = cache();
    let request = cache.get_or_load(1, load).instrument(info_span!("request"));
    assert_eq!(request.await.unwrap(), "request");
    assert_eq!(span_name(), "none");
}

#[tokio::test(start_paused = true)]
async fn a_background_refresh_runs_in_the_span_of_the_request_that_was_stale() {
    let _default = set_default(Spans::default());
    let cache = cache();
    cache.get_or_load(1, load).instrument(info_span!("first")).await.unwrap();
    tokio::time::advance(MINUTE).await;
    let stale = cache.get_or_load(1, load).instrument(info_span!("second"));
    assert_eq!(stale.await.unwrap(), "first");
    idle().await;
    assert_eq!(cache.get(1).await.unwrap().as_deref(), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_loaded_in_the_span_in_which_it_was_asked_for() {
    let _default = set_default(Spans::default());
    let load = async |parts: Vec<u64>| {
        let name = load().await?;
        Ok::<_, Infallible>(parts.into_iter().map(|_| Ok(name.clone())).collect::<Vec<_>>())
    };
    let page = async { cache().get_or_load_many([1_u64, 2], load).await };
    for name in page.instrument(info_span!("page")).await {
        assert_eq!(name.unwrap(), "page");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_without_a_ttl_warns_once_and_stores_nothing() {
    let spans = Spans::default();
    let _default = set_default(spans.clone());
    let cache: Cache<String> = Cache::builder("name", MemoryStore::new(10)).build();
    for part in 0..3 {
        cache.get_or_load(part, load).await.unwrap();
        assert_eq!(cache.get(part).await.unwrap(), None);
    }
    assert_eq!(spans.with(|known| known.warnings), 1);
}

#[tokio::test(start_paused = true)]
async fn two_types_of_values_under_one_name_are_warned_of_once_per_cache() {
    let spans = Spans::default();
    let _default = set_default(spans.clone());
    let store = MemoryStore::new(10);
    let names: Cache<String> = Cache::builder("item", store.clone()).ttl(MINUTE).build();
    let prices: Cache<u64> = Cache::builder("item", store).ttl(MINUTE).build();
    for part in 0..3 {
        names.get_or_load(part, load).await.unwrap();
        assert_eq!(prices.get(part).await.unwrap(), None);
        let price = prices.get_or_load(part, async || Ok::<_, Infallible>(7)).await;
        assert_eq!(price.unwrap(), 7);
    }
    assert_eq!(spans.with(|known| known.warnings), 1);
    names.get_or_load(0, load).await.unwrap();
    assert_eq!(spans.with(|known| known.warnings), 2);
}
