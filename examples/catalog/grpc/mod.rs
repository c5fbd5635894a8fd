//! The catalog over gRPC: the service of `catalog.proto`, written by hand.

mod messages;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http;
use bellwether::CacheStatus;
use futures_util::future::BoxFuture;
use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::Fault;
use crate::catalog::Product;
use crate::demo::Demo;
use crate::shop::Found;
use crate::source::{self, Search};
use crate::way::Way;

use messages::{
    CategoriesReply, CategoriesRequest, Category, ProductReply, ProductRequest, SearchReply,
    SearchRequest,
};

/// `catalog.Catalog`.
#[derive(Clone)]
pub(crate) struct CatalogServer(Arc<Demo>);

impl CatalogServer {
    pub(crate) fn new(demo: Arc<Demo>) -> Self {
        Self(demo)
    }

    async fn product(
        self,
        request: Request<ProductRequest>,
    ) -> Result<Response<ProductReply>, Status> {
        let way = way(&request);
        let sku = request.get_ref().sku;
        let Found { value, status } = self.0.shop.product(way, sku).await.map_err(unavailable)?;
        let product =
            value.ok_or_else(|| Status::not_found(format!("there is no product {sku}")))?;
        Ok(answer(product.into(), status))
    }

    async fn search(
        self,
        request: Request<SearchRequest>,
    ) -> Result<Response<SearchReply>, Status> {
        let way = way(&request);
        let SearchRequest { q, category, page } = request.into_inner();
        let search = Search { words: q, category, page: page.max(1) };
        let Found { value, status } = self.0.shop.search(way, search).await.map_err(unavailable)?;
        let products = value.products.into_iter().map(Into::into).collect();
        Ok(answer(SearchReply { page: value.page, products }, status))
    }

    async fn categories(
        self,
        request: Request<CategoriesRequest>,
    ) -> Result<Response<CategoriesReply>, Status> {
        let found = self.0.shop.categories(way(&request)).await.map_err(unavailable)?;
        let categories = found.value.into_iter().map(Into::into).collect();
        Ok(answer(CategoriesReply { categories }, found.status))
    }
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
        let this = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/catalog.Catalog/Product" => unary(request, |ask| this.clone().product(ask)).await,
                "/catalog.Catalog/Search" => unary(request, |ask| this.clone().search(ask)).await,
                "/catalog.Catalog/Categories" => {
                    unary(request, |ask| this.clone().categories(ask)).await
                }
                _ => Status::unimplemented("catalog.Catalog has no such method").into_http(),
            })
        })
    }
}

/// One message in and one out.
async fn unary<Req, Res, F>(
    request: http::Request<Body>,
    answer: impl FnMut(Request<Req>) -> F,
) -> http::Response<Body>
where
    Req: Message + Default + 'static,
    Res: Message + 'static,
    F: Future<Output = Result<Response<Res>, Status>> + Send,
{
    Grpc::new(ProstCodec::default()).unary(service_fn(answer), request).await
}

fn way<T>(request: &Request<T>) -> Way {
    Way::said(request.metadata().get("protect").and_then(|value| value.to_str().ok()))
}

/// A reply, and in its metadata how it came about.
fn answer<T>(reply: T, status: Option<CacheStatus>) -> Response<T> {
    let mut response = Response::new(reply);
    if let Some(status) = status.and_then(|status| status.to_string().parse().ok()) {
        response.metadata_mut().insert("cache-status", status);
    }
    response
}

fn unavailable(fault: Fault) -> Status {
    Status::unavailable(fault.to_string())
}

impl From<Product> for ProductReply {
    fn from(product: Product) -> Self {
        let Product { sku, name, price_cents, stock, categories } = product;
        Self { sku, name, price_cents, stock, categories: categories.into() }
    }
}

impl From<source::Category> for Category {
    fn from(category: source::Category) -> Self {
        let children = category.children.into_iter().map(Into::into).collect();
        Self { id: category.id, name: category.name, children }
    }
}
