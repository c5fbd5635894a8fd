//! A Tower service with its own type and error, behind `ReadThroughLayer`. It needs no server:
//! `cargo run -p bellwether-examples --bin tower_service`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether::{CacheErrorKind, Error, Key, MemoryStore, ReadThroughLayer};
use futures_util::future::join_all;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

/// A catalog that takes 50 ms for an answer.
#[derive(Clone, Default)]
struct Catalog {
    queries: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
struct GetItem {
    sku: u64,
}

#[derive(Debug)]
struct NoSuchItem(u64);

impl Service<GetItem> for Catalog {
    type Response = String;
    type Error = NoSuchItem;
    type Future = Pin<Box<dyn Future<Output = Result<String, NoSuchItem>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoSuchItem>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, GetItem { sku }: GetItem) -> Self::Future {
        self.queries.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if sku < 1_000 { Ok(format!("item {sku}")) } else { Err(NoSuchItem(sku)) }
        })
    }
}

impl fmt::Display for NoSuchItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no item {}", self.0)
    }
}

impl std::error::Error for NoSuchItem {}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let catalog = Catalog::default();
    let queries = Arc::clone(&catalog.queries);
    let cache = ReadThroughLayer::builder(MemoryStore::new(10_000), |request: &GetItem| {
        Key::of("item").with(request.sku)
    });
    // Above the cache, a layer meets every request; below it, only the loads.
    let service = ServiceBuilder::new()
        .layer(cache.ttl(Duration::from_secs(60)).build()?)
        .timeout(Duration::from_secs(2))
        .concurrency_limit(20)
        .service(catalog);

    let requests = (0..1_000).map(|_| service.clone().oneshot(GetItem { sku: 42 }));
    let answers = join_all(requests).await;
    let answered =
        answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| it == "item 42")).count();
    println!("{answered} answers, {} query", queries.load(Ordering::Relaxed));

    match service.oneshot(GetItem { sku: 7_000 }).await {
        Ok(item) => println!("{item}"),
        // The limit of time boxes errors, so the type is asked for.
        Err(Error::Load(error)) => match error.downcast_ref() {
            Some(NoSuchItem(sku)) => println!("there is no item {sku}"),
            None => println!("the catalog failed: {error:?}"),
        },
        Err(Error::Cache(error)) => match error.kind() {
            CacheErrorKind::LoadFailed(_) | CacheErrorKind::Full => println!("try again later"),
            _ => println!("the cache has no answer: {error}"),
        },
    }
    Ok(())
}
