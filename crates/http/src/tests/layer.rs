//! Any requests and any responses of their origin, for the whole layer: over a store in memory, with a paused clock.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bellwether::adapter::{BoxFuture, locked};
use bellwether::{BoxError, MemoryStore};
use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, IF_NONE_MATCH};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt};

use super::grammar::{ResponseSpec, append, request_fields, whole};
use crate::{HttpCache, HttpCacheLayer};
use bellwether_testkit::fuzz::{Choices, fuzz_slowly};

/// A response of the origin.
#[derive(Clone, Debug)]
struct MadeResponse {
    /// The number of the request that the origin answered.
    request: usize,
    method: Method,
    path: String,
    fields: HeaderMap,
    status: StatusCode,
    spec: ResponseSpec,
    body: String,
    /// When it was made, or confirmed by a later 304.
    valid_at: Instant,
    /// How often the origin had answered then.
    valid_after: usize,
    /// The requests that the origin has answered by that.
    confirmed_for: Vec<String>,
}

/// What has happened at the origin.
#[derive(Debug, Default)]
struct OriginLog {
    choices: Choices,
    made: Vec<MadeResponse>,
    asked: usize,
    /// The requests that have got no response at last. A request may be sent twice.
    unanswered: HashSet<usize>,
    /// How often it has answered.
    answered: usize,
    /// Whether its last answer was none, or an error.
    has_failed: bool,
    /// What has happened, for the message of a failure.
    events: Vec<String>,
    /// How often it had answered when it answered the last unsafe request for a path.
    changed_at: HashMap<String, usize>,
}

/// An origin that answers by the choices of a test.
#[derive(Clone, Debug, Default)]
struct FuzzedOrigin(Arc<Mutex<OriginLog>>);

impl FuzzedOrigin {
    /// Begins a test.
    fn begin(&self, choices: &mut Choices) {
        *locked(&self.0) = OriginLog { choices: std::mem::take(choices), ..OriginLog::default() };
    }

    fn answer(&self, request: &Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, BoxError> {
        let log = &mut *locked(&self.0);
        let number = request.headers()["x-nr"].to_str()?.parse()?;
        log.unanswered.remove(&number);
        if log.choices.one_in(16) {
            log.unanswered.insert(number);
            log.has_failed = true;
            log.events.push(format!("no response to {:?}", request.headers()));
            return Err("no response".into());
        }
        log.answered += 1;
        let path = request.uri().path().to_owned();
        if let Some(response) = log.not_modified(&path, request) {
            log.has_failed = false;
            return Ok(response);
        }
        let spec = ResponseSpec::any(&mut log.choices, whole(SystemTime::now()));
        let statuses = [200, 200, 200, 404, 301, 500, 503, 204];
        let status = statuses[log.choices.below(statuses.len())];
        let status = StatusCode::from_u16(status).expect("a status");
        log.has_failed = status.is_server_error();
        let nth = log.made.len();
        let method = request.method().clone();
        let body = match method == Method::HEAD || status == StatusCode::NO_CONTENT {
            true => String::new(),
            false => format!("response {nth} to {method} {path}"),
        };
        let made = MadeResponse {
            request: number,
            fields: request.headers().clone(),
            body,
            status,
            spec,
            valid_at: Instant::now(),
            valid_after: log.answered,
            confirmed_for: Vec::new(),
            method,
            path: path.clone(),
        };
        if !made.method.is_safe() && (status.is_success() || status.is_redirection()) {
            log.changed_at.insert(path, log.answered);
        }
        let (sent, asked) = (&made.spec.fields, request.headers());
        log.events.push(format!("made {nth}: {status} {sent:?} to {asked:?}"));
        // Otherwise the fields of a response to `HEAD` replace those that say which one is stored.
        let has_tag = made.method == Method::HEAD || !log.choices.one_in(2);
        let response = made.response(nth, has_tag, made.status, made.body.clone());
        log.made.push(made);
        Ok(response)
    }
}

impl OriginLog {
    /// A 304, if the request has the tag of a response to the same path.
    fn not_modified(
        &mut self,
        path: &str,
        request: &Request<Full<Bytes>>,
    ) -> Option<Response<Full<Bytes>>> {
        let tag = request.headers().get(IF_NONE_MATCH)?.to_str().ok()?;
        let nth: usize = tag.strip_prefix("\"e")?.strip_suffix('"')?.parse().ok()?;
        let made = self.made.get_mut(nth).filter(|made| {
            made.method == Method::GET && made.path == path && request.method() == Method::GET
        })?;
        let is_one =
            made.spec.is_for_one() && made.request.to_string() != request.headers()["x-nr"];
        // Its fields would be those of an older time.
        if made.spec.is_broken || is_one || self.choices.one_in(3) {
            return None;
        }
        (made.valid_at, made.valid_after) = (Instant::now(), self.answered);
        made.confirmed_for.push(request.headers()["x-nr"].to_str().ok()?.to_owned());
        Some(made.response(nth, true, StatusCode::NOT_MODIFIED, String::new()))
    }
}

impl MadeResponse {
    fn response(
        &self,
        nth: usize,
        has_tag: bool,
        status: StatusCode,
        body: String,
    ) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        *response.headers_mut() = self.spec.headers();
        append(response.headers_mut(), "x-made", nth.to_string().as_bytes());
        if has_tag {
            append(response.headers_mut(), "etag", format!("\"e{nth}\"").as_bytes());
        }
        response
    }
}

impl Service<Request<Full<Bytes>>> for FuzzedOrigin {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Full<Bytes>>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let is_slow = {
                let log = &mut *locked(&this.0);
                log.asked += 1;
                log.choices.one_in(3)
            };
            if is_slow {
                sleep(Duration::from_millis(50)).await;
            }
            this.answer(&request)
        })
    }
}

/// A request, and what the origin had done before it.
#[derive(Debug)]
struct AskedRequest {
    number: usize,
    method: Method,
    path: String,
    fields: HeaderMap,
    began: Instant,
    asked: usize,
}

impl AskedRequest {
    fn new(log: &mut OriginLog, number: usize, folder: u64, is_alone: bool) -> Self {
        let methods =
            [Method::GET, Method::GET, Method::GET, Method::GET, Method::HEAD, Method::POST];
        let method = methods[log.choices.below(if is_alone { 6 } else { 5 })].clone();
        let path = format!("/{folder}/{}", log.choices.below(2));
        let mut fields = HeaderMap::new();
        append(&mut fields, "x-nr", number.to_string().as_bytes());
        for (name, value) in request_fields(&mut log.choices, whole(SystemTime::now())) {
            append(&mut fields, name, value.as_bytes());
        }
        let asked = log.asked;
        log.events.push(format!("{number}: {method} {path} {fields:?}"));
        Self { number, method, path, fields, began: Instant::now(), asked }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = format!("http://shop{}", self.path).parse().expect("a URI");
        *request.headers_mut() = self.fields.clone();
        request
    }

    fn says(&self, directive: &str) -> bool {
        let says = self.fields.get("cache-control").and_then(|says| says.to_str().ok());
        says.is_some_and(|says| says.split(", ").any(|said| said == directive))
    }

    /// Checks a response to it.
    fn check(&self, log: &OriginLog, response: &Response<()>, body: &[u8]) {
        let made = response.headers().get("x-made").and_then(|nth| nth.to_str().ok()?.parse().ok());
        let Some(made) = made.and_then(|nth: usize| log.made.get(nth)) else {
            self.check_own(log, response);
            return;
        };
        assert_eq!(made.path, self.path, "the response of another target");
        let is_read = self.method == Method::HEAD && made.method == Method::GET;
        assert!(made.method == self.method || is_read, "the response to {}", made.method);
        self.check_body(made, response, body);
        // The origin itself may have answered its condition.
        let is_confirmed = made.confirmed_for.contains(&self.number.to_string());
        if made.request == self.number
            || is_confirmed && response.status() == StatusCode::NOT_MODIFIED
        {
            return;
        }
        assert!(self.method.is_safe(), "an unsafe request has a response of its own");
        self.check_sharing(made);
        self.check_age(log, made);
    }

    /// A response of the cache itself.
    fn check_own(&self, log: &OriginLog, response: &Response<()>) {
        match response.status().as_u16() {
            504 if self.says("only-if-cached") => {}
            416 => assert!(self.fields.contains_key("range")),
            500.. => {
                let has_made = log.made.iter().any(|made| made.request == self.number);
                let is_last = !log.unanswered.contains(&self.number);
                assert!(!has_made || !is_last, "{response:?} for an origin that has answered");
            }
            _ => panic!("{response:?} is of no origin"),
        }
    }

    fn check_body(&self, made: &MadeResponse, response: &Response<()>, body: &[u8]) {
        match response.status() {
            StatusCode::NOT_MODIFIED => {
                assert!(body.is_empty());
                let is_asked = ["if-none-match", "if-modified-since"]
                    .iter()
                    .any(|name| self.fields.contains_key(*name));
                assert!(is_asked, "a 304 to no condition");
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers()["content-range"].to_str().expect("a range");
                let range = range.trim_start_matches("bytes ").split(['-', '/']);
                let [first, last, length] =
                    range.map(|part| part.parse().expect("a number")).collect::<Vec<usize>>()[..]
                else {
                    panic!("{response:?}")
                };
                assert_eq!((body, length), (&made.body.as_bytes()[first..=last], made.body.len()));
            }
            StatusCode::RANGE_NOT_SATISFIABLE => assert!(self.fields.contains_key("range")),
            status => {
                assert_eq!(status, made.status);
                let expected = if self.method == Method::HEAD { "" } else { &made.body };
                assert_eq!(String::from_utf8_lossy(body), expected);
            }
        }
    }

    /// Whether the response to another request may be given to this one.
    fn check_sharing(&self, made: &MadeResponse) {
        if made.spec.is_broken {
            return;
        }
        assert!(!made.spec.is_for_one(), "for one request only");
        assert!(made.spec.is_for_all() || !made.fields.contains_key(AUTHORIZATION), "authorized");
        let has_cookie = self.fields.contains_key(COOKIE) || made.fields.contains_key(COOKIE);
        assert!(!has_cookie || made.spec.states_consent(), "cookies without consent");
        for name in &made.spec.vary {
            let text = |fields: &HeaderMap| {
                let lines = fields.get_all(*name).iter().filter_map(|line| line.to_str().ok());
                let text = lines.collect::<Vec<_>>().join(",").to_lowercase();
                let parts = text.split(',').map(str::trim).map(str::to_owned);
                parts
                    .filter(|part| *name != "accept-language" || !part.is_empty())
                    .collect::<Vec<_>>()
            };
            assert_eq!(text(&self.fields), text(&made.fields), "it varies by {name}");
        }
    }

    /// Whether the response to another request is new enough. A limit in the request is not checked: `Age` goes by the
    /// wall clock, which is not paused.
    fn check_age(&self, log: &OriginLog, made: &MadeResponse) {
        assert!(
            !self.says("no-store"),
            "the response to another request for one that says `no-store`"
        );
        if made.valid_at >= self.began {
            return;
        }
        let changed = log.changed_at.get(&self.path);
        assert!(changed.is_none_or(|changed| made.valid_after > *changed), "older than a change");
        let was_asked = log.asked > self.asked;
        assert!(was_asked || !self.says("no-cache"), "no revalidation for `no-cache`");
        if made.spec.is_broken {
            return;
        }
        let age = self.began - made.valid_at;
        let [while_revalidate, if_error] = made.spec.stale_windows().map(Duration::from_secs);
        // A guessed lifetime is a tenth of a time that need not be whole seconds.
        let fresh = Duration::from_millis(made.spec.freshness(made.status) * 1_000 + 100);
        let most = fresh + while_revalidate.max(if_error);
        assert!(age <= most, "{age:?} old, of {most:?}");
        // An earlier request may have begun the revalidation. After failures, there is a cooldown.
        let was_due = age > fresh + while_revalidate;
        assert!(was_asked || log.has_failed || !was_due, "stale without a request to the origin");
    }
}

/// Asks, and checks what comes back.
async fn ask(cache: &HttpCache<FuzzedOrigin>, origin: &FuzzedOrigin, asked: AskedRequest) {
    let Ok(response) = cache.clone().oneshot(asked.request()).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    // A revalidation in the background is asked for by now.
    tokio::task::yield_now().await;
    let response = Response::from_parts(parts, ());
    let log = locked(&origin.0);
    let made = response
        .headers()
        .get("x-made")
        .and_then(|nth| log.made.get(nth.to_str().ok()?.parse::<usize>().ok()?));
    let shown = format!("{asked:#?}\n{response:#?}\n{made:#?}\n{:#?}", log.events);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        asked.check(&log, &response, &body)
    }));
    if let Err(why) = checked {
        let text = why.downcast_ref::<String>().cloned();
        let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        panic!("{}\n{shown}", text.unwrap_or_default());
    }
}

/// How many requests a game has.
const REQUESTS: usize = 8;

async fn play(cache: &HttpCache<FuzzedOrigin>, origin: &FuzzedOrigin, folder: u64) {
    let mut number = 0;
    while number < REQUESTS {
        let pause = {
            let log = &mut *locked(&origin.0);
            [0, 0, 1, 5, 61, 4_000][log.choices.below(6)]
        };
        advance(Duration::from_secs(pause)).await;
        let next = |is_alone| AskedRequest::new(&mut locked(&origin.0), number, folder, is_alone);
        let is_alone = !locked(&origin.0).choices.one_in(4);
        if is_alone {
            ask(cache, origin, next(true)).await;
        } else {
            let one = next(false);
            number += 1;
            let other = AskedRequest::new(&mut locked(&origin.0), number, folder, false);
            tokio::join!(ask(cache, origin, one), ask(cache, origin, other));
        }
        number += 1;
    }
}

/// The promises of a shared cache, whatever clients and origins send: no panic, no error of its own where the origin has
/// answered, each response is one that the origin gave for that method and target, none of one client reaches another
/// unless it permits that, and none is older than it permits.
#[test]
fn fuzzed_requests_get_only_responses_that_are_for_them_and_new_enough() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let origin = FuzzedOrigin::default();
    let layer =
        HttpCacheLayer::builder(MemoryStore::new(1_000)).jitter(0.0).build().expect("no jitter");
    let cache = layer.layer(origin.clone());
    let folders = AtomicU64::new(0);
    fuzz_slowly("HTTP layer", 1_024, REQUESTS as u32, |choices| {
        origin.begin(choices);
        let folder = folders.fetch_add(1, Ordering::Relaxed);
        runtime.block_on(play(&cache, &origin, folder));
    });
}
