//! An origin that answers as a test says, and the requests of its callers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether_body::CacheBody;
use bellwether_http::{HttpCache, HttpCacheLayer, HttpCacheLayerBuilder};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use tower::{BoxError, Layer, Service, ServiceExt};

pub(crate) type Page = Response<Body>;

pub(crate) type Answer = Response<CacheBody<Body>>;

type Answers =
    dyn Fn(Request<Body>, usize) -> BoxFuture<'static, Result<Page, BoxError>> + Send + Sync;

/// An origin, how many times it was asked, and with which fields.
#[derive(Clone)]
pub(crate) struct Origin {
    answers: Arc<Answers>,
    asked: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<(Method, HeaderMap)>>>,
}

impl Origin {
    /// An origin that answers by a function of the request and of how many were before it.
    pub(crate) fn new<F, Fut>(answers: F) -> Self
    where
        F: Fn(Request<Body>, usize) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Page, BoxError>> + Send + 'static,
    {
        let answers: Arc<Answers> = Arc::new(move |request, nth| Box::pin(answers(request, nth)));
        Self { answers, asked: Arc::default(), requests: Arc::default() }
    }

    /// One that gives the same fields and a text that says how many were before it.
    pub(crate) fn counting(fields: &'static [(&'static str, &'static str)]) -> Self {
        Self::new(async move |_, nth| Ok(page(fields, format!("answer {nth}"))))
    }

    /// One whose responses have the fields that a request names with the prefix `echo-`, and a text
    /// that says how many were before it. `echo-status` is the status.
    pub(crate) fn echoing() -> Self {
        Self::new(async move |request: Request<Body>, nth| {
            let mut response = page(&[("cache-control", "max-age=60")], nth.to_string());
            for (name, value) in request.headers() {
                match name.as_str().strip_prefix("echo-") {
                    Some("status") => *response.status_mut() = value.to_str()?.parse()?,
                    Some(name) => {
                        let name: http::HeaderName = name.parse()?;
                        response.headers_mut().insert(name, value.clone());
                    }
                    None => {}
                }
            }
            Ok(response)
        })
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The field of the last request, if it had it.
    pub(crate) fn last(&self, field: &str) -> Option<String> {
        let requests = self.requests.lock().unwrap();
        let (_, fields) = requests.last().expect("it was asked");
        fields.get(field).map(|value| value.to_str().unwrap().to_owned())
    }
}

impl Service<Request<Body>> for Origin {
    type Response = Page;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Page, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let seen = (request.method().clone(), request.headers().clone());
        self.requests.lock().unwrap().push(seen);
        let nth = self.asked.fetch_add(1, Ordering::SeqCst);
        (self.answers)(request, nth)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("asked", &self.asked).finish_non_exhaustive()
    }
}

pub(crate) fn page(fields: &[(&str, &str)], text: impl Into<Body>) -> Page {
    let response = fields.iter().fold(Response::builder(), |response, (name, value)| {
        if *name == ":status" { response.status(*value) } else { response.header(*name, *value) }
    });
    response.body(text.into()).unwrap()
}

pub(crate) fn request(method: &str, uri: &str, fields: &[(&str, &str)]) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri);
    let request =
        fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).unwrap()
}

pub(crate) fn memory() -> HttpCacheLayerBuilder {
    plain(MemoryStore::new(10_000))
}

/// A layer with the lifetimes that responses state.
pub(crate) fn plain(store: impl bellwether::store::Store) -> HttpCacheLayerBuilder {
    HttpCacheLayer::builder(store).jitter(0.0)
}

pub(crate) async fn redis() -> (RedisServer, RedisStore) {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(), "test").await.unwrap();
    (server, store)
}

/// The same with a timeout that no slow machine reaches.
pub(crate) async fn patient_redis() -> (RedisServer, RedisStore) {
    let server = RedisServer::start();
    let options = RedisOptions::new(&server.url(), "test").unwrap();
    let options = options.timeout(Duration::from_secs(30));
    (server, options.connect().await.unwrap())
}

pub(crate) fn cached<R>(layer: &HttpCacheLayer<R>, origin: &Origin) -> HttpCache<Origin> {
    layer.layer(origin.clone())
}

/// A caller.
pub(crate) async fn ask(
    cache: &HttpCache<Origin>,
    method: &str,
    uri: &str,
    fields: &[(&str, &str)],
) -> Answer {
    let Ok(answer) = cache.clone().oneshot(request(method, uri, fields)).await;
    answer
}

pub(crate) async fn get(cache: &HttpCache<Origin>, fields: &[(&str, &str)]) -> Answer {
    ask(cache, "GET", "http://shop/item", fields).await
}

/// The content of an answer.
pub(crate) async fn text(answer: Answer) -> String {
    let content = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(content.to_vec()).unwrap()
}

pub(crate) fn field<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Our entry in `Cache-Status`.
pub(crate) fn says(answer: &Answer, what: &str) -> bool {
    field(answer, "cache-status").split("; ").any(|said| said == what)
}

pub(crate) fn is_hit(answer: &Answer) -> bool {
    says(answer, "hit")
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}
