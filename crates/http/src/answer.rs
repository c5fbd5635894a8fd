//! The response to one request, made from a stored response.

use bellwether_body::CacheBody;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use super::codec::{CachedResponse, no_body};
use super::report::Report;
use super::rules::{self, Slice};

/// The response to one request: all of a stored response, the range that the request asks for, or
/// 304 if the client has it already.
pub(super) fn answer<B>(
    cached: &CachedResponse,
    request: &Parts,
    report: &Report,
) -> Response<CacheBody<B>> {
    let stored = &cached.response;
    let mut response = match wanted(cached, request) {
        None => {
            with(StatusCode::NOT_MODIFIED, rules::not_modified_headers(&stored.headers), no_body())
        }
        Some(Slice::Whole) if request.method == Method::HEAD => {
            with(stored.status, head_fields(cached), no_body())
        }
        Some(Slice::Whole) => {
            let body = CacheBody::stored(stored.body.clone(), stored.trailers.clone());
            with(stored.status, stored.headers.clone(), body)
        }
        Some(Slice::Part { first, last }) => part(cached, first, last),
        Some(Slice::Unsatisfiable) => {
            let mut headers = HeaderMap::new();
            let length = format!("bytes */{}", stored.body.len());
            insert(&mut headers, header::CONTENT_RANGE, &length);
            with(StatusCode::RANGE_NOT_SATISFIABLE, headers, no_body())
        }
    };
    // A response that the origin gave to this very request has no `Age` (RFC 9111, section 5.1).
    let age = stored.note.age().as_secs();
    if age > 0 || !report.is_of_this_request() {
        response.headers_mut().insert(header::AGE, age.into());
    }
    report.add_to(&mut response);
    response
}

/// Which part of a stored response a request asks for. `None` if the client has it already.
fn wanted(cached: &CachedResponse, request: &Parts) -> Option<Slice> {
    let stored = &cached.response;
    if rules::is_not_modified(&request.headers, stored.status, &stored.headers) {
        return None;
    }
    Some(match request.method == Method::GET && stored.status == StatusCode::OK {
        true => rules::slice(&request.headers, &stored.headers, stored.body.len() as u64),
        false => Slice::Whole,
    })
}

fn part<B>(cached: &CachedResponse, first: u64, last: u64) -> Response<CacheBody<B>> {
    let stored = &cached.response;
    let length = stored.body.len();
    let bound = |at: u64| usize::try_from(at).unwrap_or(length).min(length);
    let data = stored.body.slice(bound(first)..bound(last.saturating_add(1)).max(bound(first)));
    let mut headers = stored.headers.clone();
    DIGESTS_OF_CONTENT.iter().for_each(|name| _ = headers.remove(name));
    insert(&mut headers, header::CONTENT_RANGE, &format!("bytes {first}-{last}/{length}"));
    insert(&mut headers, header::CONTENT_LENGTH, &data.len().to_string());
    with(StatusCode::PARTIAL_CONTENT, headers, CacheBody::stored(data, None))
}

/// Fields that describe the whole content, so a partial response does not have them. `Repr-Digest`
/// stays: it is always about the whole representation (RFC 9530, section 3).
const DIGESTS_OF_CONTENT: [HeaderName; 2] =
    [HeaderName::from_static("content-digest"), HeaderName::from_static("content-md5")];

/// The fields of a response to HEAD, with the length that the content of a GET would have.
fn head_fields(cached: &CachedResponse) -> HeaderMap {
    let stored = &cached.response;
    let mut headers = stored.headers.clone();
    let may_have_length = stored.trailers.is_none() && stored.status != StatusCode::NO_CONTENT;
    if may_have_length && !headers.contains_key(header::CONTENT_LENGTH) {
        insert(&mut headers, header::CONTENT_LENGTH, &stored.body.len().to_string());
    }
    headers
}

fn with<B>(status: StatusCode, headers: HeaderMap, body: CacheBody<B>) -> Response<CacheBody<B>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

pub(super) fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A response that passes through: as it is, or as 304 if the client has it already.
pub(super) fn passed<B>(
    mut response: Response<CacheBody<B>>,
    request: &Parts,
    report: &Report,
) -> Response<CacheBody<B>> {
    if rules::is_not_modified(&request.headers, response.status(), response.headers()) {
        let headers = rules::not_modified_headers(response.headers());
        response = with(StatusCode::NOT_MODIFIED, headers, no_body());
    }
    if request.method == Method::HEAD {
        response = response.map(|_| no_body());
    }
    report.add_to(&mut response);
    response
}
