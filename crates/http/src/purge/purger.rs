//! `Purger`: does what a `PURGE` request asks for, if that has the token.

use bellwether::adapter::{result_of_all, warn_throttled};
use bellwether::{CacheError, Key, Tag};
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};

use super::super::derived_key::DerivedKey;
use super::super::handle::HttpHandle;
use super::super::mode::Mode;
use super::super::rules::{self, CACHE_GROUPS};
use super::super::tag_fields::{TagFields, tags_of_group};
use super::super::target::TargetUri;
use super::token::BearerToken;

/// Does what a `PURGE` request asks for.
#[derive(Debug)]
pub(super) struct Purger {
    pub(super) token: BearerToken,
    pub(super) handle: HttpHandle,
    pub(super) mode: Mode,
    pub(super) target: TargetUri,
    pub(super) tag_fields: TagFields,
}

/// The status of the response to a `PURGE` request, and its text.
pub(super) type PurgeOutcome = (StatusCode, &'static str);

impl Purger {
    /// Does what a request asks for.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the responses may be purged or not.
    pub(super) async fn purge(&self, parts: Parts) -> PurgeOutcome {
        if !self.token.is_in(&parts.headers) {
            return (StatusCode::UNAUTHORIZED, "PURGE needs a bearer token\n");
        }
        match self.try_purge(parts).await {
            Ok(true) => (StatusCode::OK, "purged\n"),
            Ok(false) => (StatusCode::OK, "nothing was stored\n"),
            Err(PurgeError::Refused(reason)) => (StatusCode::BAD_REQUEST, reason),
            Err(PurgeError::Cache(error)) => {
                warn_throttled!(target: "bellwether::http", %error, "a response was perhaps not purged");
                (StatusCode::SERVICE_UNAVAILABLE, "the store of the cache failed\n")
            }
        }
    }

    /// Returns whether there may have been something.
    async fn try_purge(&self, mut parts: Parts) -> Result<bool, PurgeError> {
        let is_soft = is_soft(&parts.headers)?;
        if let Some(tags) = self.tags(&mut parts)? {
            return self.purge_tags(&tags, is_soft).await.map(|()| true);
        }
        let keys = self.keys(parts).await?;
        let entries = self.handle.entries();
        Ok(match is_soft {
            true => entries.expire_many(keys).await? > 0,
            false => entries.invalidate_many(keys).await? > 0,
        })
    }

    /// The tags of the groups and of the surrogate keys that a request names.
    fn tags(&self, parts: &mut Parts) -> Result<Option<Vec<Tag>>, PurgeError> {
        let mut tags = self.tag_fields.surrogate_tags(&parts.headers);
        if parts.headers.contains_key(CACHE_GROUPS) {
            tags.get_or_insert_default().extend(self.group_tags(parts)?);
        }
        match tags {
            Some(tags) if tags.is_empty() => refused("no group and no surrogate key is named\n"),
            tags => Ok(tags),
        }
    }

    fn group_tags(&self, parts: &mut Parts) -> Result<Vec<Tag>, PurgeError> {
        if !self.tag_fields.follows_groups {
            return refused("this cache ignores groups\n");
        }
        let Some(groups) = rules::listed(&parts.headers, &CACHE_GROUPS) else {
            return refused("Cache-Groups is not a list of strings, as in \"a\", \"b\"\n");
        };
        let Some(target) = self.target.target_of(parts) else { return refused(NO_TARGET) };
        Ok(groups.iter().flat_map(|group| tags_of_group(&target, group)).collect())
    }

    /// The keys under which a response to this request is stored.
    async fn keys(&self, mut parts: Parts) -> Result<Vec<Key>, PurgeError> {
        let Mode::Keyed(keyed) = &self.mode else {
            let Some(target) = self.target.target_of(&mut parts) else {
                return refused(NO_TARGET);
            };
            return Ok(target.keys().into_iter().collect());
        };
        match keyed.key.extracted(&mut parts).await {
            DerivedKey::Key(key) if key.byte_len() <= Key::MAX_BYTES => Ok(vec![key]),
            DerivedKey::Key(_) | DerivedKey::Nothing => refused("this request has no cache key\n"),
            DerivedKey::Unknown(_) => refused("the route lacks a parameter of the cache key\n"),
        }
    }

    async fn purge_tags(&self, tags: &[Tag], is_soft: bool) -> Result<(), PurgeError> {
        let entries = self.handle.entries();
        let purged = |tag| async move {
            match is_soft {
                true => entries.expire_tag(tag).await,
                false => entries.invalidate_tag(tag).await,
            }
        };
        let done = join_all(tags.iter().map(purged));
        Ok(result_of_all(done.await)?)
    }
}

/// Why a request does not purge what it names.
#[derive(Debug)]
enum PurgeError {
    Refused(&'static str),
    Cache(CacheError),
}

impl From<CacheError> for PurgeError {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

fn refused<T>(reason: &'static str) -> Result<T, PurgeError> {
    Err(PurgeError::Refused(reason))
}

/// Whether the responses are to become stale only. What cannot be read is refused, since a client
/// that wants a soft purge must not get a hard one.
fn is_soft(headers: &HeaderMap) -> Result<bool, PurgeError> {
    let mut values = headers.get_all(SOFT_PURGE).iter().map(|value| value.as_bytes());
    match (values.next(), values.next()) {
        (None, _) | (Some(b"0"), None) => Ok(false),
        (Some(b"1"), None) => Ok(true),
        _ => refused("Soft-Purge is neither 1 nor 0\n"),
    }
}

const SOFT_PURGE: HeaderName = HeaderName::from_static("soft-purge");

const NO_TARGET: &str = "the target of this request is uncertain\n";
