//! Ways to make a service that say at once what does not fit.

use tower::{Layer, Service};

use super::layer::ReadThroughLayer;
use super::lookup::IntoLookup;
use super::service::ReadThrough;
use crate::codec::{Codec, InProcess};
use crate::error::BoxError;
use crate::store::InProcessStore;

impl<K: Clone, C> ReadThroughLayer<K, C> {
    /// The loader behind this layer, as by [`layer`](Layer::layer). The compiler checks here that
    /// the loader, its answers and the requests are what a cache needs, and says what is missing.
    ///
    /// ```
    /// use bellwether::{Key, MemoryStore, ReadThroughLayer, loader_fn};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let layer = ReadThroughLayer::new(MemoryStore::new(10), |sku: &u64| Key::of("name").with(*sku));
    /// let load = loader_fn(async |sku: u64| Ok::<_, std::io::Error>(format!("item {sku}")));
    /// assert_eq!(layer.service(load).oneshot(42).await.unwrap(), "item 42");
    /// # }
    /// ```
    ///
    /// A [`Batched`](crate::Batched) loader is no service of single requests: `layer` takes it.
    pub fn service<S, Req, R>(&self, loader: S) -> ReadThrough<S, K, C>
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError> + Send + Sync + 'static,
        Req: Send + 'static,
        K: Fn(&Req) -> R,
        R: IntoLookup,
        C: Codec<S::Response>,
    {
        self.layer(loader)
    }
}

impl<K> ReadThroughLayer<K, InProcess> {
    /// A layer whose answers are never encoded, over a store of this process alone. They are any
    /// `Clone` values, such as an `Arc`. As [`new`](Self::new) otherwise; see
    /// [`Cache::in_process`](crate::Cache::in_process).
    pub fn in_process<S, Req, R>(store: S, key_of: K) -> Self
    where
        S: InProcessStore,
        K: Fn(&Req) -> R,
        R: IntoLookup,
    {
        ReadThroughLayer::new(store, key_of).codec(InProcess)
    }
}
