//! `CompleteResponse`: a response of the origin whose body was read to its end.

use bellwether::{BoxError, Tag};
use bellwether_body::BufferedResponse;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use std::sync::Arc;

use super::codec::{CachedResponse, Disposition, OriginInfo};
use super::note::Note;
use super::rules::{self, Terms, Times};

/// A response of the origin whose body was read to its end.
pub(super) struct CompleteResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
    pub(super) origin: OriginInfo,
    pub(super) times: Times,
}

impl CompleteResponse {
    /// The response to be shared, and stored with these tags if its disposition says so. `last_expiry`:
    /// for a variant, that of the variants of its target when it was loaded; otherwise 0.
    pub(super) fn to_cached(
        &self,
        disposition: Disposition,
        terms: &Terms,
        tags: Vec<Tag>,
        last_expiry: u64,
    ) -> Arc<CachedResponse> {
        let mut headers = rules::storable_headers(&self.headers);
        if !headers.contains_key(header::DATE)
            && let Ok(now) = httpdate::fmt_http_date(self.times.response_time).parse()
        {
            headers.insert(header::DATE, now);
        }
        let Terms { age, consent, stale, .. } = *terms;
        let received = self.times.response_time;
        let note = Note::new(received, (age, terms.freshness()), consent, last_expiry, stale);
        let body = self.body.clone();
        let trailers = self.trailers.clone();
        let response = BufferedResponse { status: self.status, headers, body, trailers, note };
        Arc::new(CachedResponse::new(response, disposition, self.origin).tagged(tags))
    }
}

/// The length that `Content-Length` announces, if it can be read.
pub(super) fn announced(headers: &HeaderMap) -> Option<Option<usize>> {
    let announced = headers.get(header::CONTENT_LENGTH)?;
    Some(announced.to_str().ok().and_then(|length| length.trim().parse().ok()))
}

/// Checks that a body has the length that `Content-Length` announced. One with fewer or more bytes
/// is not the response.
pub(super) fn check_length(headers: &HeaderMap, length: usize) -> Result<(), BoxError> {
    match announced(headers) {
        Some(announced) if announced != Some(length) => {
            Err("the body does not have the length that Content-Length announced".into())
        }
        _ => Ok(()),
    }
}
