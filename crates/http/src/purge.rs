//! `PURGE`: removes stored responses for clients that prove their right to it.

use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{result_of_all, warn_throttled, within};
use bellwether::store::Digest;
use bellwether::{CacheError, ConfigError, Key, Tag};
use bellwether_body::CacheBody;
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use subtle::ConstantTimeEq;

use super::layer_state::LayerState;
use super::rules::{self, CACHE_GROUPS};

/// The status of the response to a `PURGE` request, and its text.
type PurgeOutcome = (StatusCode, &'static str);

/// Answers a `PURGE` request.
///
/// # Cancel safety
/// If it is dropped before it returns, the responses may be purged or not.
pub(super) async fn answer<B>(shared: Arc<LayerState>, parts: Parts) -> Response<CacheBody<B>> {
    let (status, text) = shared.purge(parts).await.unwrap_or_else(|refused| refused);
    let mut response = Response::new(CacheBody::stored(text.into(), None));
    *response.status_mut() = status;
    let mut insert = |name: HeaderName, value| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    insert(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    insert(header::CACHE_CONTROL, "no-store");
    if status == StatusCode::UNAUTHORIZED {
        insert(header::WWW_AUTHENTICATE, "Bearer");
    }
    response
}

impl LayerState {
    /// Does what a `PURGE` request asks for.
    async fn purge(&self, mut parts: Parts) -> Result<PurgeOutcome, PurgeOutcome> {
        if !self.parts.purge_token.as_ref().is_some_and(|token| token.is_in(&parts.headers)) {
            return Err((StatusCode::UNAUTHORIZED, "PURGE needs a bearer token\n"));
        }
        let is_soft = is_soft(&parts.headers)?;
        let entries = self.entries();
        if let Some(tags) = self.purged_tags(&mut parts)? {
            let purged = async |tag| match is_soft {
                true => entries.expire_tag(tag, Duration::ZERO).await,
                false => entries.invalidate_tag(tag).await,
            };
            result_of_all(join_all(tags.iter().map(purged)).await).map_err(failed)?;
            return Ok(PURGED);
        }
        let keys = self.purged_keys(parts)?;
        let purged = match is_soft {
            true => entries.expire_many(keys).await,
            false => entries.invalidate_many(keys).await,
        };
        match purged.map_err(failed)? {
            0 => Ok((StatusCode::OK, "nothing was stored\n")),
            _ => Ok(PURGED),
        }
    }

    /// The tags of the groups and of the surrogate keys that a request names.
    fn purged_tags(&self, parts: &mut Parts) -> Result<Option<Vec<Tag>>, PurgeOutcome> {
        let mut tags = self.parts.tag_fields.surrogate_tags(&parts.headers);
        if parts.headers.contains_key(CACHE_GROUPS) {
            tags.get_or_insert_default().extend(self.purged_groups(parts)?);
        }
        match tags {
            Some(tags) if tags.is_empty() => refused("no group and no surrogate key is named\n"),
            tags => Ok(tags),
        }
    }

    fn purged_groups(&self, parts: &mut Parts) -> Result<Vec<Tag>, PurgeOutcome> {
        if !self.parts.tag_fields.follows_groups {
            return refused("this cache ignores groups\n");
        }
        let Some(groups) = rules::listed(&parts.headers, &CACHE_GROUPS) else {
            return refused("Cache-Groups is not a list of strings, as in \"a\", \"b\"\n");
        };
        let Some(target) = self.parts.target.target_of(parts) else { return refused(NO_TARGET) };
        Ok(groups.iter().flat_map(|group| target.groups(group)).collect())
    }

    /// The keys under which a response to this request is stored.
    fn purged_keys(&self, mut parts: Parts) -> Result<Vec<Key>, PurgeOutcome> {
        let Some(key) = &self.rules.key else {
            let target = self.parts.target.target_of(&mut parts);
            return target.map_or_else(
                || refused(NO_TARGET),
                |target| Ok(target.keys().into_iter().collect()),
            );
        };
        match key.derived(&mut parts) {
            Ok(Some(key)) => Ok(vec![key]),
            Ok(None) => refused("this request has no cache key\n"),
            Err(_) => refused("the route lacks a parameter of the cache key\n"),
        }
    }
}

const PURGED: PurgeOutcome = (StatusCode::OK, "purged\n");

#[allow(clippy::needless_pass_by_value, reason = "it maps an error")]
fn failed(error: CacheError) -> PurgeOutcome {
    warn_throttled!(target: "bellwether::http", %error, "a response was perhaps not purged");
    (StatusCode::SERVICE_UNAVAILABLE, "the store of the cache failed\n")
}

fn refused<T>(reason: &'static str) -> Result<T, PurgeOutcome> {
    Err((StatusCode::BAD_REQUEST, reason))
}

/// Whether the responses are to become stale only. What cannot be read is refused, since a client
/// that wants a soft purge must not get a hard one.
fn is_soft(headers: &HeaderMap) -> Result<bool, PurgeOutcome> {
    let mut values = headers.get_all(SOFT_PURGE).iter().map(|value| value.as_bytes());
    match (values.next(), values.next()) {
        (None, _) | (Some(b"0"), None) => Ok(false),
        (Some(b"1"), None) => Ok(true),
        _ => refused("Soft-Purge is neither 1 nor 0\n"),
    }
}

const SOFT_PURGE: HeaderName = HeaderName::from_static("soft-purge");

const NO_TARGET: &str = "the target of this request is uncertain\n";

/// The hash of a secret that requests prove to know (RFC 6750, section 2.1).
///
/// Hashes have one length and say nothing about the secret, so neither the time of a comparison nor
/// the memory of this process does.
pub(super) struct BearerToken(Digest);

impl BearerToken {
    /// # Errors
    /// If the token is too short or too long, or cannot be sent as it is.
    pub(super) fn new(token: &str) -> Result<Self, ConfigError> {
        within("bytes of the purge token", token.len(), SHORTEST, LONGEST)?;
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "it has other characters than visible ASCII";
            return Err(ConfigError::Key { given: "purge token".to_owned(), reason });
        }
        Ok(Self(hash(token.as_bytes())))
    }

    /// Whether a request has this token.
    fn is_in(&self, request: &HeaderMap) -> bool {
        let Some(value) = rules::only(request, &header::AUTHORIZATION) else { return false };
        let value = value.as_bytes();
        let scheme_end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, token) = value.split_at(scheme_end);
        let given = hash(token.trim_ascii());
        let is_same = given.as_bytes()[..].ct_eq(&self.0.as_bytes()[..]);
        scheme.eq_ignore_ascii_case(b"bearer") && bool::from(is_same)
    }
}

fn hash(token: &[u8]) -> Digest {
    Key::of("purge-token").with(token).digest()
}

/// The shortest token, in bytes: 16 random hexadecimal digits are 64 bits.
const SHORTEST: usize = 16;

const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "0123456789abcdef-secret";

    fn takes(values: &[&str]) -> bool {
        let mut request = HeaderMap::new();
        for value in values {
            request.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        BearerToken::new(SECRET).unwrap().is_in(&request)
    }

    #[test]
    fn only_the_very_token_is_taken() {
        let good = format!("Bearer {SECRET}");
        assert!(takes(&[&good]) && takes(&[&format!("bearer  {SECRET}")]));
        for wrong in ["", "Bearer", "Bearer ", SECRET, &format!("Basic {SECRET}")] {
            assert!(!takes(&[wrong]), "{wrong:?}");
        }
        assert!(!takes(&[&format!("{good}x")]) && !takes(&[&good[..good.len() - 1]]));
        assert!(!takes(&[]) && !takes(&[&good, &good]) && !takes(&[&good, "Bearer x"]));
    }

    #[test]
    fn a_token_that_is_too_short_or_cannot_be_sent_is_refused() {
        for wrong in ["", "short", &"x".repeat(2_000), "0123456789abcdef\n", "0123456789 abcdef"] {
            let error = BearerToken::new(wrong).err().unwrap().to_string();
            assert!(error.contains("purge token"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }
}
