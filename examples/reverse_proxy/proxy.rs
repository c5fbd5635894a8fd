//! The proxy itself, which the tests run too.

#[path = "upgrade.rs"]
mod upgrade;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bellwether_http::HttpCacheLayer;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::service::service_fn as service_fn_of_hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self as client, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};
use upgrade::{Offer, Tunnels};

/// Serves all connections, by HTTP/1.1 or by HTTP/2 with prior knowledge, until it is dropped.
///
/// # Errors
/// If the origin is not an absolute URI.
pub(crate) async fn serve(
    listener: TcpListener,
    origin: &Uri,
    layer: &HttpCacheLayer,
) -> io::Result<()> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let forwarder =
        Arc::new(Forwarder { origin: Origin::of(origin)?, client, tunnels: Tunnels::default() });
    let cache = layer.layer(service_fn(move |request| Arc::clone(&forwarder).forward(request)));
    let service = service_fn_of_hyper(move |request: Request<Incoming>| {
        // A cache is always ready.
        let answer = names_one_host(&request).then(|| cache.clone().call(request.map(Body::new)));
        async move {
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer.await?.map(Body::new)),
                None => Ok(bad_request("a request names one host\n")),
            }
        }
    });
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // No free file descriptor, or a client that has disconnected: try again soon.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Without it, a response in several writes waits for an acknowledgement that is delayed.
        _ = stream.set_nodelay(true);
        let service = service.clone();
        connections.spawn(async move {
            let server = builder();
            // An error of one connection does not concern the others.
            let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

/// What asks the origin.
struct Forwarder {
    origin: Origin,
    client: Client<HttpConnector, Body>,
    tunnels: Tunnels,
}

impl Forwarder {
    async fn forward(
        self: Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, client::Error> {
        let offer = Offer::of(&mut request);
        let mut request = self.origin.address(request);
        if let Some(offer) = &offer {
            offer.make(request.headers_mut());
        }
        let mut response = match self.client.request(request).await {
            Err(error) if is_of_client(&error) => {
                return Ok(bad_request("the body is broken\n"));
            }
            response => response?,
        };
        let version = response.version();
        let accepted = offer.filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS);
        strip_hop_by_hop(response.headers_mut());
        add_via(response.headers_mut(), version);
        if let Some(offer) = accepted {
            offer.make(response.headers_mut());
            self.tunnels.join(offer, &mut response);
        }
        Ok(response.map(Body::new))
    }
}

/// What serves a connection.
fn builder() -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    server.http2().timer(TokioTimer::new());
    server
}

/// Whether a request has one valid `Host`, or needs none (RFC 9112, section 3.2).
fn names_one_host<B>(request: &Request<B>) -> bool {
    let mut lines = request.headers().get_all(header::HOST).iter();
    match (lines.next(), lines.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => host.is_empty() || is_host(host.as_bytes()),
        (Some(_), Some(_)) => false,
    }
}

/// Whether this is a host, with a port or without (RFC 9110, section 7.2).
fn is_host(text: &[u8]) -> bool {
    let (name, port) =
        text.split_at(text.iter().position(|byte| *byte == b':').unwrap_or(text.len()));
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    if !name.is_empty() && name.iter().all(is_of_name) {
        return port.iter().skip(1).all(u8::is_ascii_digit);
    }
    Authority::try_from(text).is_ok_and(|authority| {
        let port = authority.as_str().strip_prefix(authority.host());
        port.is_some_and(|port| {
            let digits = port.strip_prefix(':').unwrap_or(port);
            digits.bytes().all(|digit| digit.is_ascii_digit())
        })
    })
}

/// Whether a request was not sent because its body, as the client sends it, cannot be read.
fn is_of_client(error: &client::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(hyper::Error::is_user)
}

fn bad_request(why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// The server that requests are forwarded to.
struct Origin {
    scheme: Scheme,
    authority: Authority,
}

impl Origin {
    fn of(uri: &Uri) -> io::Result<Self> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the origin must be an absolute URI, as in http://127.0.0.1:8000",
            ));
        };
        Ok(Self { scheme: scheme.clone(), authority: authority.clone() })
    }

    /// Makes a request to the origin of a request to this proxy.
    fn address(&self, request: Request<Body>) -> Request<Body> {
        let (mut parts, body) = request.into_parts();
        let mut uri = parts.uri.into_parts();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(self.authority.clone());
        uri.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
        parts.uri = Uri::from_parts(uri).unwrap_or_default();
        strip_hop_by_hop(&mut parts.headers);
        join_cookies(&mut parts.headers);
        // The HTTP client sets `Host` to the origin.
        parts.headers.remove(header::HOST);
        add_via(&mut parts.headers, parts.version);
        parts.version = Version::HTTP_11;
        Request::from_parts(parts, body)
    }
}

/// Removes the fields that are about one connection only (RFC 9110, section 7.6.1).
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(','));
    let named: Vec<_> = named.filter_map(|name| name.trim().parse::<HeaderName>().ok()).collect();
    let always = HOP_BY_HOP.into_iter().map(HeaderName::from_static);
    for name in always.chain(named) {
        headers.remove(name);
    }
}

/// Joins the lines of `Cookie`, which HTTP/2 splits (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    let joined = lines.collect::<Vec<_>>().join(&b"; "[..]);
    if let Ok(cookie) = HeaderValue::from_bytes(&joined)
        && headers.contains_key(header::COOKIE)
    {
        headers.insert(header::COOKIE, cookie);
    }
}

/// Names this proxy and the version of the message that it received (RFC 9110, section 7.6.3).
fn add_via(headers: &mut HeaderMap, version: Version) {
    let via = match version {
        Version::HTTP_10 => "1.0 bellwether",
        Version::HTTP_2 => "2 bellwether",
        _ => "1.1 bellwether",
    };
    headers.append(header::VIA, HeaderValue::from_static(via));
}

const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];
