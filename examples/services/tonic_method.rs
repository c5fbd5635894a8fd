//! A tonic service, one of whose methods is cached. It needs no server, and calls itself a hundred times:
//! `cargo run -p bellwether-examples --bin tonic_method`.
//!
//! The service and its client are what `tonic-prost-build` makes of a `.proto` file; they are written by hand here, so
//! that no compiler of such files is needed.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use bellwether::MemoryStore;
use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
use futures_util::future::{BoxFuture, join_all};
use prost::Message;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

const PRODUCT: &str = "/catalog.Catalog/Product";

#[derive(Clone, PartialEq, Message)]
struct ProductRequest {
    #[prost(uint64, tag = "1")]
    sku: u64,
}

#[derive(Clone, PartialEq, Message)]
struct ProductReply {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, Default)]
struct CatalogServer {
    calls: Arc<AtomicU64>,
}

impl CatalogServer {
    async fn product(
        self,
        request: Request<ProductRequest>,
    ) -> Result<Response<ProductReply>, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await; // a query
        Ok(Response::new(ProductReply { name: format!("product {}", request.get_ref().sku) }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let catalog = CatalogServer::default();
    let calls = Arc::clone(&catalog.calls);
    // Without `ignoring_credentials`, a call with a token would bypass the cache.
    let product = CachedMethod::fresh_for(Duration::from_secs(60)).ignoring_credentials();
    let cache =
        GrpcCacheLayer::builder(MemoryStore::new(10_000)).method(PRODUCT, product).build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(cache).add_service(catalog);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let answers = join_all((0..100).map(|_| product_of(channel.clone(), 42))).await;
    let answered = answers.iter().filter(|it| it.as_ref().is_ok_and(|it| it.name == "product 42"));
    println!("{} answers, {} call of the method", answered.count(), calls.load(Ordering::Relaxed));
    Ok(())
}

/// The client.
async fn product_of(channel: Channel, sku: u64) -> Result<ProductReply, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<ProductRequest, ProductReply>::default();
    let path = http::uri::PathAndQuery::from_static(PRODUCT);
    let reply = client.unary(Request::new(ProductRequest { sku }), path, codec).await?;
    Ok(reply.into_inner())
}

impl NamedService for CatalogServer {
    const NAME: &'static str = "catalog.Catalog";
}

impl Service<http::Request<Body>> for CatalogServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let catalog = self.clone();
        Box::pin(async move {
            if request.uri().path() != PRODUCT {
                return Ok(Status::unimplemented("there is no such method").into_http());
            }
            let answer = service_fn(move |request| catalog.clone().product(request));
            let codec = ProstCodec::<ProductReply, ProductRequest>::default();
            Ok(tonic::server::Grpc::new(codec).unary(answer, request).await)
        })
    }
}
