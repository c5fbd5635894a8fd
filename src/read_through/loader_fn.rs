//! `loader_fn`: async functions and closures as loaders.

use std::fmt;
use std::future::Future;
use std::task::{Context, Poll};

use tower::Service;

/// An async function or closure as a loader. It may capture what it needs, such as a pool of
/// connections:
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::{Key, MemoryStore, ReadThroughLayer};
/// use bellwether::service::loader_fn;
/// use tower::ServiceExt;
/// # #[derive(Clone)]
/// # struct Pool;
/// # async fn query(_: &Pool, sku: u64) -> Result<String, std::io::Error> { Ok(format!("item {sku}")) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pool = Pool;
/// let layer = ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &u64| Key::of("item").with(*sku))
///     .ttl(Duration::from_secs(60))
///     .build()?;
/// let catalog = layer.service(loader_fn(async move |sku: u64| query(&pool, sku).await));
///
/// assert_eq!(catalog.oneshot(42).await?, "item 42");
/// # Ok(())
/// # }
/// ```
///
/// Each load calls a clone of the closure. So the future may borrow what the closure has captured,
/// which [`tower::service_fn`] does not allow, and what it captures must be `Clone`: a pool, an
/// `Arc`.
pub fn loader_fn<F, Req, L, R, E>(load: F) -> LoaderFn<F>
where
    F: FnOnce(Req) -> L + Clone,
    L: Future<Output = Result<R, E>>,
{
    LoaderFn(load)
}

/// The loader of [`loader_fn`].
#[derive(Clone, Copy)]
pub struct LoaderFn<F>(F);

impl<F, Req, L, R, E> Service<Req> for LoaderFn<F>
where
    F: FnOnce(Req) -> L + Clone,
    L: Future<Output = Result<R, E>>,
{
    type Response = R;
    type Error = E;
    type Future = L;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> L {
        (self.0.clone())(request)
    }
}

impl<F> fmt::Debug for LoaderFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderFn").finish_non_exhaustive()
    }
}
