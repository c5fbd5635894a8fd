//! `PURGE`: removes stored responses for clients that prove their right to it.

use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{result_of_all, warn_throttled};
use bellwether::{CacheError, Key, Tag};
use bellwether_body::CacheBody;
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::layer_state::LayerState;
use super::rules::{self, CACHE_GROUPS};

/// The status of the response to a `PURGE` request, and its text.
type PurgeOutcome = (StatusCode, &'static str);

/// Answers a `PURGE` request.
///
/// # Cancel safety
/// If it is dropped before it returns, the responses may be purged or not.
pub(super) async fn answer<B>(shared: Arc<LayerState>, parts: Parts) -> Response<CacheBody<B>> {
    let (status, text) = purge(&shared, parts).await.unwrap_or_else(|refused| refused);
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

/// Does what a `PURGE` request asks for.
async fn purge(shared: &LayerState, mut parts: Parts) -> Result<PurgeOutcome, PurgeOutcome> {
    if !shared.parts.purge_token.as_ref().is_some_and(|token| token.is_in(&parts.headers)) {
        return Err((StatusCode::UNAUTHORIZED, "PURGE needs a bearer token\n"));
    }
    let is_soft = is_soft(&parts.headers)?;
    let entries = shared.entries();
    if let Some(tags) = tags(shared, &mut parts)? {
        let purged = async |tag| match is_soft {
            true => entries.expire_tag(tag, Duration::ZERO).await,
            false => entries.invalidate_tag(tag).await,
        };
        result_of_all(join_all(tags.iter().map(purged)).await).map_err(failed)?;
        return Ok(PURGED);
    }
    let keys = keys(shared, parts)?;
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
fn tags(shared: &LayerState, parts: &mut Parts) -> Result<Option<Vec<Tag>>, PurgeOutcome> {
    let mut tags = shared.parts.tag_fields.surrogate_tags(&parts.headers);
    if parts.headers.contains_key(CACHE_GROUPS) {
        tags.get_or_insert_default().extend(group_tags(shared, parts)?);
    }
    match tags {
        Some(tags) if tags.is_empty() => refused("no group and no surrogate key is named\n"),
        tags => Ok(tags),
    }
}

fn group_tags(shared: &LayerState, parts: &mut Parts) -> Result<Vec<Tag>, PurgeOutcome> {
    if !shared.parts.tag_fields.follows_groups {
        return refused("this cache ignores groups\n");
    }
    let Some(groups) = rules::listed(&parts.headers, &CACHE_GROUPS) else {
        return refused("Cache-Groups is not a list of strings, as in \"a\", \"b\"\n");
    };
    let Some(target) = shared.parts.target.target_of(parts) else { return refused(NO_TARGET) };
    Ok(groups.iter().flat_map(|group| target.groups(group)).collect())
}

/// The keys under which a response to this request is stored.
fn keys(shared: &LayerState, mut parts: Parts) -> Result<Vec<Key>, PurgeOutcome> {
    let Some(key) = &shared.rules.key else {
        let target = shared.parts.target.target_of(&mut parts);
        return target
            .map_or_else(|| refused(NO_TARGET), |target| Ok(target.keys().into_iter().collect()));
    };
    match key.derived(&mut parts) {
        Ok(Some(key)) => Ok(vec![key]),
        Ok(None) => refused("this request has no cache key\n"),
        Err(_) => refused("the route lacks a parameter of the cache key\n"),
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
