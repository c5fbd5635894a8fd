//! `Answered`: an answer of the origin that was read to its end.

use bellwether::BoxError;
use bellwether_body::KeptResponse;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use std::sync::Arc;

use super::kept::{CachedResponse, Disposition, Note, OriginInfo};
use super::mode::StorageTerms;
use super::rules::{self, Times};

/// An answer of the origin that was read to its end.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
    pub(super) said: OriginInfo,
    pub(super) times: Times,
}

impl Answered {
    pub(super) fn whole(
        &self,
        disposition: Disposition,
        terms: &StorageTerms,
    ) -> Arc<CachedResponse> {
        let mut headers = rules::storable_headers(&self.headers);
        if !headers.contains_key(header::DATE)
            && let Ok(now) = httpdate::fmt_http_date(self.times.answered).parse()
        {
            headers.insert(header::DATE, now);
        }
        let note = Note::new(self.times.answered, terms.age, terms.freshness, terms.consent);
        let (body, trailers) = (self.body.clone(), self.trailers.clone());
        let response = KeptResponse { status: self.status, headers, body, trailers, note };
        Arc::new(CachedResponse::new(response, disposition, self.said))
    }
}

/// Less or more than was announced is not the response.
pub(super) fn check_length(headers: &HeaderMap, length: usize) -> Result<(), BoxError> {
    let announced = headers.get(header::CONTENT_LENGTH).map(|value| value.to_str().ok());
    match announced.map(|value| value?.trim().parse::<usize>().ok()) {
        Some(announced) if announced != Some(length) => {
            Err("the content is not as long as was announced".into())
        }
        _ => Ok(()),
    }
}
