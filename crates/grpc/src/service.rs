//! `GrpcCache`: the service, and the deadline of its caller.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::adapter::{AdapterCache, RequestOptions};
use bellwether::stats::RequestRecord;
use bellwether::store::Tags;
use bellwether::{BoxError, BypassReason, CacheStatus, Error, Tag};
use bellwether_body::{BodyBudget, CacheBody, CollectedBody};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::Full;
use tokio::time::{Duration, Instant};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::answer::GrpcCodec;
use super::error_status::{status_for_caller, status_of};
use super::fetch::{GrpcFetch, UnaryRequest};
use super::key::{CallParts, GRPC_TIMEOUT, key, normalise};
use super::message::{is_plain, is_whole, read};
use super::method::{CachedMethod, Methods};
use super::method_use::OtherCalls;

/// Services behind a cache. See the [module page](super).
///
/// It is always ready. Its error is `Infallible`: a failure of the service or
/// of the cache becomes a status.
#[derive(Clone)]
pub struct GrpcCache<S> {
    pub(super) fetch: GrpcFetch<S>,
    pub(super) client: AdapterCache<GrpcCodec>,
    pub(super) options: GrpcOptions,
    pub(super) others: Arc<OtherCalls>,
}

/// The options of a layer that are not those of every cache.
#[derive(Clone, Debug)]
pub(super) struct GrpcOptions {
    pub(super) methods: Arc<Methods>,
    pub(super) max_request_bytes: usize,
    pub(super) collecting: BodyBudget,
    pub(super) shows_status: bool,
}

impl<S> GrpcCache<S> {
    /// The service behind the cache.
    pub fn get_ref(&self) -> &S {
        &self.fetch.inner
    }

    /// The service behind the cache.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.fetch.inner
    }

    /// The service behind the cache.
    pub fn into_inner(self) -> S {
        self.fetch.inner
    }
}

impl<S, B, R> Service<Request<R>> for GrpcCache<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<CacheBody<B>>;
    type Error = Infallible;
    type Future = GrpcResponseFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let record = self.client.begin();
        let path = request.uri().path();
        let method = self.options.methods.get(path).cloned();
        if method.is_none() {
            let named = self.options.methods.iter().map(|(path, named)| (path, &*named.calls));
            self.others.called(path, named);
        }
        let (parts, body) = request.into_parts();
        let this = self.clone();
        GrpcResponseFuture(match method.filter(|method| method.takes(&parts)) {
            Some(method) => {
                let unread = UnreadRequest { deadline: deadline(&parts.headers), method, parts };
                Box::pin(this.read(unread, body, record))
            }
            None => {
                let request = Request::from_parts(parts, Body::new(body));
                this.note_bypass(&request);
                Box::pin(this.bypass(request, record))
            }
        })
    }
}

/// A request for a cached method, before its message is read.
struct UnreadRequest {
    deadline: Option<Instant>,
    method: Arc<CachedMethod>,
    parts: Parts,
}

impl<S, B> GrpcCache<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    /// Answers from the cache if the body is one message. If not, the request bypasses the cache with
    /// what was read and the rest.
    async fn read<R>(
        self,
        unread: UnreadRequest,
        body: R,
        record: RequestRecord,
    ) -> Response<CacheBody<B>>
    where
        R: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let body = match read(body, self.options.max_request_bytes, None).await.ok() {
            Some(CollectedBody::Whole { data, trailers }) => {
                // No client of gRPC sends trailers, and the key has none.
                if trailers.is_none()
                    && is_whole(&data)
                    && is_plain(&data)
                    && let Some(tags) = unread.method.tags_of(&data)
                {
                    unread.method.calls.looked_up();
                    return self.ask(unread, data, tags, record).await;
                }
                Body::new(CacheBody::<Full<Bytes>>::stored(data, trailers))
            }
            Some(CollectedBody::Unfinished { begun, rest, .. }) => {
                Body::new(CacheBody::resumed(begun, rest))
            }
            // Its caller has left, and the record counts that.
            None => return Status::cancelled("the request body failed").into_http(),
        };
        let request = Request::from_parts(unread.parts, body);
        self.note_bypass(&request);
        self.bypass(request, record).await
    }

    /// Warns if all calls of a named method bypass the cache.
    fn note_bypass(&self, request: &Request<Body>) {
        let path = request.uri().path();
        if let Some(method) = self.options.methods.get(path) {
            method.calls.bypassed(path);
        }
    }

    /// The response to a request that bypasses the cache.
    async fn bypass(self, request: Request<Body>, record: RequestRecord) -> Response<CacheBody<B>> {
        let answered = self.client.load_alone(None, self.fetch.inner, request).await;
        let status = CacheStatus::Bypass(BypassReason::NoKey);
        record.end(if matches!(answered, Ok(Ok(_))) { &status } else { &CacheStatus::Failed });
        let mut response = match answered {
            Ok(Ok(response)) => response.map(CacheBody::passing),
            Ok(Err(error)) => status_of(error.into()).into_http(),
            Err(panicked) => status_for_caller(&Error::Cache(panicked)).into_http(),
        };
        response.extensions_mut().insert(status);
        response
    }

    async fn ask(
        self,
        unread: UnreadRequest,
        message: Bytes,
        tags: Vec<Tag>,
        record: RequestRecord,
    ) -> Response<CacheBody<B>> {
        let UnreadRequest { deadline, method, mut parts } = unread;
        let authority = method.authority_of(&parts).flatten();
        normalise(&mut parts, &method, authority.as_deref());
        let key = key(&CallParts {
            path: parts.uri.path(),
            method: &method,
            authority: authority.as_deref(),
            headers: &parts.headers,
            message: &message,
        });
        let tags = Tags::of_entry(tags.iter().map(Tag::digest));
        let options = RequestOptions::default().tagged(tags).part_of(&record);
        let options = match deadline {
            Some(deadline) => options.deadline(deadline),
            None => options,
        };
        let load = UnaryRequest { method, parts, message };
        let asked = self.client.request(key, options, &self.fetch, load);
        let (answered, status) = asked.with_status().await;
        record.end(if answered.is_err() { &CacheStatus::Failed } else { &status });
        let response = match answered {
            Ok(answer) => answer.into_response(),
            Err(error) => status_for_caller(&error).into_http(),
        };
        self.shown(response, status)
    }

    fn shown(
        &self,
        mut response: Response<CacheBody<B>>,
        status: CacheStatus,
    ) -> Response<CacheBody<B>> {
        let value = self.options.shows_status.then(|| HeaderValue::try_from(status.to_string()));
        if let Some(Ok(value)) = value {
            response.headers_mut().append(CACHE_STATUS, value);
        }
        response.extensions_mut().insert(status);
        response
    }
}

/// The name by which the service behind the cache is routed.
impl<S: NamedService> NamedService for GrpcCache<S> {
    const NAME: &'static str = S::NAME;
}

bellwether::debug_fields! { GrpcCache<S> where S: Debug => |it|
    inner = it.fetch.inner, methods = it.options.methods
}

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// The deadline of a request, if it has one. A value that does not follow the specification of gRPC
/// over HTTP/2 is ignored, as that demands.
pub(super) fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let mut values = headers.get_all(GRPC_TIMEOUT).iter();
    let timeout = parse(values.next()?.as_bytes())?;
    if values.next().is_some() {
        return None;
    }
    Instant::now().checked_add(timeout)
}

/// One to eight digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The response to one request, as a future. Made by [`GrpcCache`](super::GrpcCache).
///
/// # Cancel safety
/// Dropping it does not affect other callers, as with
/// [`AnswerFuture`](bellwether::AnswerFuture). A request that bypasses the cache is
/// dropped with it.
#[must_use = "futures do nothing unless polled"]
pub struct GrpcResponseFuture<B>(pub(super) BoxFuture<'static, Response<CacheBody<B>>>);

impl<B> Future for GrpcResponseFuture<B> {
    type Output = Result<Response<CacheBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(Ok)
    }
}

bellwether::debug_fields! { GrpcResponseFuture<B> }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_understood() {
        let timeouts = [
            ("2H", Duration::from_secs(7_200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
            ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
            ("00000001S", Duration::from_secs(1)),
            ("0S", Duration::ZERO),
        ];
        for (value, expected) in timeouts {
            assert_eq!(parse(value.as_bytes()), Some(expected), "{value}");
        }
    }

    #[test]
    fn what_is_no_timeout_is_ignored() {
        for value in
            ["", "S", "1", "1s", "1 S", "-1S", "+1S", "1.5S", "999999999S", "1SS", "\u{661}S"]
        {
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn two_timeouts_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        assert!(deadline(&headers).is_some());
        headers.append(GRPC_TIMEOUT, HeaderValue::from_static("2S"));
        assert!(deadline(&headers).is_none());
    }

    /// Read in another way than [`parse`] does: as a number, after its form was checked.
    #[test]
    fn fuzzed_timeouts_are_ignored_or_are_a_number_of_at_most_eight_digits_and_a_unit() {
        bellwether_testkit::fuzz::fuzz("grpc-timeout", 24, 1, |choices| {
            let units = ["H", "M", "S", "m", "u", "n", "s", ""];
            let valid = format!("{}{}", choices.number() % 1_000_000_000, choices.pick(&units));
            let value = match choices.one_in(2) {
                true => choices.mutated(valid.as_bytes(), b"12345678n"),
                false => valid.into_bytes(),
            };
            let text = str::from_utf8(&value).unwrap_or_default();
            let (digits, unit) =
                text.split_at(text.len() - usize::from(text.is_ascii() && !text.is_empty()));
            let has_form = (1..=8).contains(&digits.len())
                && !digits.contains(|it: char| !it.is_ascii_digit());
            let nanos: Option<u128> = match unit {
                _ if !has_form => None,
                "H" => Some(3_600_000_000_000),
                "M" => Some(60_000_000_000),
                "S" => Some(1_000_000_000),
                "m" => Some(1_000_000),
                "u" => Some(1_000),
                "n" => Some(1),
                _ => None,
            };
            let expected = nanos.map(|unit| unit * digits.parse::<u128>().unwrap_or_default());
            assert_eq!(parse(&value).map(|timeout| timeout.as_nanos()), expected, "{text:?}");
        });
    }
}
