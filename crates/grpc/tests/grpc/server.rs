//! Servers on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_grpc::{CachedMethod, GrpcCacheLayer, GrpcCacheLayerBuilder};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::catalog::{Catalog, PRODUCT, RAW};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Products are stored for a minute.
pub(crate) fn layer() -> GrpcCacheLayerBuilder {
    of(CachedMethod::fresh_for(MINUTE))
}

/// Products are stored by this method's options. Answers up to 5 MiB are stored.
pub(crate) fn of(method: CachedMethod) -> GrpcCacheLayerBuilder {
    let layer = GrpcCacheLayer::builder(MemoryStore::new(1_000));
    let layer = layer.method(PRODUCT, method.clone()).method(RAW, method);
    layer.max_entry_bytes(5 << 20).jitter(0.0)
}

async fn listen() -> (SocketAddr, TcpListenerStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    (listener.local_addr().expect("an address"), TcpListenerStream::new(listener))
}

/// Serves without the layer.
pub(crate) async fn plain(catalog: Catalog) -> SocketAddr {
    let (address, incoming) = listen().await;
    let server = Server::builder().add_routes(Routes::new(catalog));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

/// Serves with the layer over all routes.
pub(crate) async fn layered(catalog: Catalog, layer: GrpcCacheLayer) -> SocketAddr {
    let (address, incoming) = listen().await;
    let server = Server::builder().layer(layer).add_routes(Routes::new(catalog));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

/// Serves with the layer around one service.
pub(crate) async fn wrapped(catalog: Catalog, layer: GrpcCacheLayer) -> SocketAddr {
    let (address, incoming) = listen().await;
    let named = tonic::service::LayerExt::named_layer(&layer, catalog.clone());
    // It keeps its name by itself too.
    let routes = Routes::new(tower::Layer::layer(&layer, catalog));
    drop(Routes::new(named));
    tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(incoming));
    address
}
