//! Loaders in the OpenTelemetry context of the request that began the load.

use std::task;

use opentelemetry::Context;
use opentelemetry::context::{FutureExt, WithContext};
use tower::Service;

/// A function for [`Cache::get_or_load`](bellwether::Cache::get_or_load) that runs in the context in
/// which this is called.
///
/// If the load of another caller answers, that load runs in the context of that caller.
pub fn in_current_context<F, L>(load: F) -> impl FnOnce() -> WithContext<L>
where
    F: FnOnce() -> L,
{
    let context = Context::current();
    move || {
        let _attached = context.clone().attach();
        load().with_context(context)
    }
}

/// A function for [`Cache::get_or_load_many`](bellwether::Cache::get_or_load_many) that runs in the
/// context in which this is called.
pub fn batch_in_current_context<P, F, L>(load: F) -> impl FnOnce(Vec<P>) -> WithContext<L> + Clone
where
    F: FnOnce(Vec<P>) -> L + Clone,
{
    let context = Context::current();
    move |parts| {
        let _attached = context.clone().attach();
        load(parts).with_context(context)
    }
}

/// A request, and the context in which it is made. [`ContextLoader`] loads in that context.
#[derive(Clone, Debug)]
pub struct InContext<R> {
    request: R,
    context: Context,
}

impl<R> InContext<R> {
    /// A request in the current context.
    pub fn current(request: R) -> Self {
        Self { request, context: Context::current() }
    }

    /// The request, for the function that makes its key.
    pub fn request(&self) -> &R {
        &self.request
    }
}

/// A loader for a [`ReadThroughLayer`](bellwether::ReadThroughLayer), whose requests say in which
/// context they are loaded.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::{Key, MemoryStore, ReadThroughLayer};
/// use bellwether::service::loader_fn;
/// use bellwether_opentelemetry::{ContextLoader, InContext};
/// use tower::{Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let key = |request: &InContext<u64>| Key::of("item").with(*request.request());
/// let layer =
///     ReadThroughLayer::builder(MemoryStore::new(10_000), key).ttl(Duration::from_secs(60)).build()?;
/// let load = loader_fn(async |sku: u64| Ok::<_, std::io::Error>(format!("item {sku}")));
/// let catalog = layer.layer(ContextLoader::new(load));
///
/// assert_eq!(catalog.oneshot(InContext::current(42)).await?, "item 42");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ContextLoader<S>(S);

impl<S> ContextLoader<S> {
    /// Around a loader.
    pub fn new(loader: S) -> Self {
        Self(loader)
    }
}

impl<S, R> Service<InContext<R>> for ContextLoader<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = WithContext<S::Future>;

    fn poll_ready(&mut self, task: &mut task::Context<'_>) -> task::Poll<Result<(), S::Error>> {
        self.0.poll_ready(task)
    }

    fn call(&mut self, InContext { request, context }: InContext<R>) -> Self::Future {
        let _attached = context.clone().attach();
        self.0.call(request).with_context(context)
    }
}
