//! Calls below the level of gRPC: a request with its fields and bytes, and all that comes back.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt};

use crate::catalog::{Product, Wanted};

/// A connection of HTTP/2.
#[derive(Clone, Debug)]
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a server");
        let io = TokioIo::new(stream);
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), io).await.expect("HTTP/2");
        tokio::spawn(connection);
        Self(sender)
    }

    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Response<hyper::body::Incoming> {
        self.0.clone().send_request(request).await.expect("a response")
    }

    pub(crate) async fn call(&self, request: Request<Full<Bytes>>) -> Seen {
        Seen::of(self.send(request).await).await
    }
}

/// All that there is to see of a response, but when it was sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// The head was all.
    pub(crate) ends_with_head: bool,
}

impl Seen {
    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: HttpBody<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (mut head, body) = response.into_parts();
        head.headers.remove("date");
        let ends_with_head = body.is_end_stream();
        let body = body.collect().await.expect("a whole body");
        let trailers = body.trailers().cloned();
        let data = body.to_bytes();
        Self { status: head.status, headers: head.headers, data, trailers, ends_with_head }
    }

    /// The number of the status, of the trailers or else of the head.
    pub(crate) fn grpc_status(&self) -> u32 {
        let trailer = self.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
        let status = trailer.or_else(|| self.headers.get("grpc-status")).expect("a status");
        status.to_str().expect("digits").parse().expect("a number")
    }

    /// What its one message holds.
    pub(crate) fn content(&self) -> String {
        assert_eq!(self.grpc_status(), 0, "{self:?}");
        let product = Product::decode(self.data.slice(5..)).expect("a product");
        String::from_utf8(product.content).expect("text")
    }

    pub(crate) fn cache_status(&self) -> &str {
        self.headers["cache-status"].to_str().expect("words")
    }
}

/// A message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.encoded_len().try_into().expect("a short message"));
    message.encode(&mut framed).expect("room");
    framed.freeze()
}

/// A request of a method, as any client would send it.
pub(crate) fn request(method: &str, what: &str) -> Request<Full<Bytes>> {
    let body = framed(&Wanted { what: what.to_owned() });
    Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body))
        .expect("a request")
}

/// A request with more metadata.
pub(crate) fn with(
    mut request: Request<Full<Bytes>>,
    metadata: &[(&'static str, &'static str)],
) -> Request<Full<Bytes>> {
    for (name, value) in metadata {
        let name = HeaderName::from_static(name);
        let value = HeaderValue::from_static(value);
        request.headers_mut().append(name, value);
    }
    request
}

/// Asks a service itself, without a connection.
pub(crate) async fn ask<S, B>(service: &S, request: Request<Full<Bytes>>) -> Seen
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    Seen::of(service.clone().oneshot(request).await.expect("an answer")).await
}
