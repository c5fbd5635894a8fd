//! A gRPC service like one of the code generator, with handlers that tests provide.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

pub(crate) const PRODUCT: &str = "/catalog.Catalog/Product";
pub(crate) const CHANGES: &str = "/catalog.Catalog/Changes";
pub(crate) const RAW: &str = "/catalog.Catalog/Raw";

/// The request message.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Wanted {
    #[prost(string, tag = "1")]
    pub(crate) what: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Product {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) content: Vec<u8>,
}

impl Product {
    pub(crate) fn of(content: impl Into<Vec<u8>>) -> Self {
        Self { content: content.into() }
    }
}

pub(crate) type Answered = Result<Response<Product>, Status>;
type Unary = dyn Fn(Request<Wanted>) -> BoxFuture<'static, Answered> + Send + Sync;
type Streaming = dyn Fn() -> BoxStream<'static, Result<Product, Status>> + Send + Sync;
type Raw = dyn Fn() -> http::Response<Body> + Send + Sync;

/// The service. Clones share what they count.
#[derive(Clone)]
pub(crate) struct Catalog {
    unary: Arc<Unary>,
    streaming: Arc<Streaming>,
    raw: Arc<Raw>,
    calls: Arc<AtomicUsize>,
}

impl Catalog {
    pub(crate) fn new<F>(unary: impl Fn(Request<Wanted>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        Self {
            unary: Arc::new(move |request| unary(request).boxed()),
            streaming: Arc::new(|| stream::empty().boxed()),
            raw: Arc::new(|| Status::unimplemented("raw").into_http()),
            calls: Arc::default(),
        }
    }

    /// A catalog that answers by the number of calls before.
    pub(crate) fn counting(answer: impl Fn(usize) -> Answered + Send + Sync + 'static) -> Self {
        let calls = AtomicUsize::new(0);
        Self::new(move |_| std::future::ready(answer(calls.fetch_add(1, Ordering::SeqCst))))
    }

    /// A catalog that answers with the number of calls before.
    pub(crate) fn numbered() -> Self {
        Self::counting(|number| Ok(Response::new(Product::of(number.to_string()))))
    }

    pub(crate) fn streaming(
        self,
        streaming: impl Fn() -> BoxStream<'static, Result<Product, Status>> + Send + Sync + 'static,
    ) -> Self {
        Self { streaming: Arc::new(streaming), ..self }
    }

    pub(crate) fn raw(
        self,
        raw: impl Fn() -> http::Response<Body> + Send + Sync + 'static,
    ) -> Self {
        Self { raw: Arc::new(raw), ..self }
    }

    /// How many calls there were, of any method.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl<B> Service<http::Request<B>> for Catalog
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let this = self.clone();
        let mut encodings = EnabledCompressionEncodings::default();
        encodings.enable(CompressionEncoding::Gzip);
        let mut grpc = Grpc::new(ProstCodec::<Product, Wanted>::default())
            .apply_compression_config(encodings, encodings);
        async move {
            Ok(match request.uri().path() {
                PRODUCT => grpc.unary(service_fn(move |asked| (this.unary)(asked)), request).await,
                CHANGES => {
                    let streaming = service_fn(move |_: Request<Wanted>| {
                        std::future::ready(Ok::<_, Status>(Response::new((this.streaming)())))
                    });
                    grpc.server_streaming(streaming, request).await
                }
                RAW => (this.raw)(),
                _ => Status::unimplemented("no such method").into_http(),
            })
        }
        .boxed()
    }
}

impl NamedService for Catalog {
    const NAME: &'static str = "catalog.Catalog";
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("calls", &self.calls()).finish_non_exhaustive()
    }
}
