//! A load runs in the context of the request that began it.

use std::convert::Infallible;

use bellwether::{Cache, MemoryStore};
use bellwether_opentelemetry::{batch_in_current_context, in_current_context};
use bellwether_testkit::caches::{MINUTE, idle};
use opentelemetry::Context;
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{SpanId, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;

/// A request of a client: a span, and the context with it.
fn request() -> (Context, SpanId) {
    let tracer = SdkTracerProvider::builder().build().tracer("test");
    let context = Context::new().with_span(tracer.start("request"));
    let id = context.span().span_context().span_id();
    assert_ne!(id, SpanId::INVALID);
    (context, id)
}

/// The span in which this is called, also after a pause.
async fn current_span() -> Result<SpanId, Infallible> {
    let before = Context::current().span().span_context().span_id();
    tokio::task::yield_now().await;
    assert_eq!(Context::current().span().span_context().span_id(), before);
    Ok(before)
}

fn text(id: SpanId) -> String {
    id.to_string()
}

fn cache() -> Cache<u64, String> {
    let builder = Cache::builder("name", MemoryStore::new(10)).ttl(MINUTE);
    builder.stale_while_revalidate(MINUTE).build().expect("options")
}

async fn load() -> Result<String, Infallible> {
    current_span().await.map(text)
}

#[tokio::test(start_paused = true)]
async fn a_load_runs_in_the_context_of_the_request_that_opened_it() {
    let cache = cache();
    let (context, span) = request();
    let ask = async { cache.get_or_load(1, in_current_context(load)).await };
    assert_eq!(ask.with_context(context).await.unwrap(), text(span));
    assert_eq!(load().await.unwrap(), text(SpanId::INVALID));
}

#[tokio::test(start_paused = true)]
async fn a_background_refresh_runs_in_the_context_of_the_request_that_was_stale() {
    let cache = cache();
    let (first, before) = request();
    let (second, after) = request();
    let ask = async || cache.get_or_load(1, in_current_context(load)).await.unwrap();
    ask().with_context(first).await;
    tokio::time::advance(MINUTE).await;
    assert_eq!(ask().with_context(second).await, text(before));
    idle().await;
    assert_eq!(cache.get(1).await.unwrap(), Some(text(after)));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_loaded_in_the_context_of_its_request() {
    let cache = cache();
    let (context, span) = request();
    let load = async |parts: Vec<u64>| {
        let span = load().await?;
        Ok::<_, Infallible>(parts.into_iter().map(|_| Ok(span.clone())).collect::<Vec<_>>())
    };
    let page = async { cache.get_or_load_many([1_u64, 2], batch_in_current_context(load)).await };
    for found in page.with_context(context).await {
        assert_eq!(found.unwrap(), text(span));
    }
}
