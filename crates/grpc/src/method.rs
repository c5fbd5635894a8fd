//! `CachedMethod`: how the answers of one method are kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{ConfigError, Lifetimes};
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use tonic::Code;

use super::message::is_compressed;

/// How the answers of one method are kept. For [`GrpcCacheLayer::method`](super::GrpcCacheLayer::method).
///
/// ```
/// # use std::time::Duration;
/// # use bellwether_grpc::CachedMethod;
/// # fn product() -> Result<CachedMethod, bellwether::ConfigError> {
/// let product = CachedMethod::fresh_for(Duration::from_secs(60))
///     .stale_if_error(Duration::from_secs(3_600))
///     .status(tonic::Code::NotFound, Duration::from_secs(5))
///     .metadata("x-tenant")?;
/// # Ok(product)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CachedMethod {
    windows: Lifetimes,
    /// Statuses that are kept besides `OK`, and for how long.
    statuses: Vec<(Code, Duration)>,
    /// What belongs to the key, in the order of the names.
    metadata: Vec<HeaderName>,
    ignores_credentials: bool,
    takes_compressed: bool,
}

impl CachedMethod {
    /// Answers with status `OK` are kept for this long. Zero: concurrent callers share
    /// a load, and that is all. Longer than 366 days counts as that.
    ///
    /// A server can say otherwise of one answer, by `cache-control` in its initial metadata:
    /// `no-store` and `private` make it one for a single caller, `max-age` and `no-cache` set its
    /// time.
    pub fn fresh_for(ttl: Duration) -> Self {
        Self {
            windows: Lifetimes::fresh_for(ttl),
            statuses: Vec::new(),
            metadata: Vec::new(),
            ignores_credentials: false,
            takes_compressed: false,
        }
    }

    /// As [`ReadThroughLayer::stale_while_revalidate`](bellwether::ReadThroughLayer::stale_while_revalidate),
    /// with its default.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.windows = self.windows.stale_while_revalidate(window);
        self
    }

    /// As [`ReadThroughLayer::stale_if_error`](bellwether::ReadThroughLayer::stale_if_error), with its
    /// default. The statuses that count as errors are on the [module page](super#statuses).
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.windows = self.windows.stale_if_error(window);
        self
    }

    /// Keeps answers with this status too, for this long and not as stale ones. Of
    /// [`Code::Ok`] it sets the time to be fresh.
    ///
    /// Default: none is kept but `OK`. What is asked for before it exists is wanted soon after.
    #[must_use]
    pub fn status(mut self, code: Code, ttl: Duration) -> Self {
        self.statuses.retain(|(named, _)| *named != code);
        self.statuses.push((code, ttl));
        self
    }

    /// Makes metadata of a request part of the key: all values of this name, or that there are
    /// none. Everything on which the answer depends belongs into the key.
    ///
    /// Default: none; the key is the method and the message.
    ///
    /// # Errors
    /// If there can be no metadata of this name.
    pub fn metadata(mut self, name: &str) -> Result<Self, ConfigError> {
        let named = HeaderName::from_bytes(name.as_bytes());
        let name = named.map_err(|_| no_metadata(name))?;
        if !self.metadata.contains(&name) {
            self.metadata.push(name);
            self.metadata.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        }
        Ok(self)
    }

    /// Takes requests with credentials (`authorization` or `cookie`) as if they had none. Only for
    /// methods that give all their callers the same answer.
    ///
    /// Default: unless they are part of the key, such a request goes past the cache, since its
    /// answer may be for its caller only.
    #[must_use]
    pub fn ignoring_credentials(mut self) -> Self {
        self.ignores_credentials = true;
        self
    }

    /// Takes requests whose message is compressed as well, and keeps their answers under its
    /// compressed bytes, where [`GrpcHandle`](super::GrpcHandle) does not find them.
    ///
    /// Default: such a request goes past the cache, so that no answer outlives its invalidation.
    #[must_use]
    pub fn with_compressed_requests(mut self) -> Self {
        self.takes_compressed = true;
        self
    }

    /// Which metadata belongs to the key.
    pub(super) fn names(&self) -> &[HeaderName] {
        &self.metadata
    }

    /// For how long an answer of this status is kept, if it is.
    pub(super) fn windows_of(&self, code: Code) -> Option<Lifetimes> {
        let named = self.statuses.iter().find(|(named, _)| *named == code).map(|(_, ttl)| *ttl);
        match (code, named) {
            (Code::Ok, None) => Some(lasting(self.windows.ttl(), &self.windows)),
            (Code::Ok, Some(ttl)) => Some(lasting(ttl, &self.windows)),
            (_, ttl) => ttl.map(Lifetimes::fresh_for),
        }
    }

    /// Whether a request of this kind may be answered by what others were given.
    pub(super) fn takes(&self, parts: &Parts) -> bool {
        let is_grpc = || {
            let content_type = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
            content_type.is_some_and(|given| PROTOBUF.contains(&given))
        };
        parts.method == Method::POST && is_grpc() && !self.is_personal(&parts.headers)
    }

    /// Whether a message of this kind may be answered by what others were given.
    pub(super) fn takes_message(&self, message: &[u8]) -> bool {
        !message.is_empty() && (self.takes_compressed || !is_compressed(message))
    }

    fn is_personal(&self, headers: &HeaderMap) -> bool {
        let unkeyed = |name| headers.contains_key(name) && !self.metadata.contains(name);
        !self.ignores_credentials && [AUTHORIZATION, COOKIE].iter().any(unkeyed)
    }
}

/// The same windows with another time to be fresh. Without one, there are no stale ones either.
pub(super) fn lasting(ttl: Duration, windows: &Lifetimes) -> Lifetimes {
    if ttl.is_zero() {
        return Lifetimes::fresh_for(ttl);
    }
    Lifetimes::fresh_for(ttl)
        .stale_while_revalidate(windows.while_revalidate())
        .stale_if_error(windows.if_error())
}

/// The methods that are cached, by their paths.
pub(super) type Methods = HashMap<String, Arc<CachedMethod>>;

pub(super) fn no_metadata(name: &str) -> ConfigError {
    ConfigError::Key { given: name.to_owned(), reason: "there is no such metadata" }
}

/// Checks the path of a method.
pub(super) fn check(path: &str) -> Result<(), ConfigError> {
    let is_name = |name: &str| {
        let is_of_name = |letter: char| letter.is_ascii_graphic() && !"/?#%".contains(letter);
        !name.is_empty() && name.chars().all(is_of_name)
    };
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match parts {
        Some((service, method))
            if is_name(service) && is_name(method) && path.len() <= LONGEST_PATH =>
        {
            Ok(())
        }
        _ => {
            let reason = "a method is named by its path, as in `/package.Service/Method`";
            Err(ConfigError::Key { given: path.to_owned(), reason })
        }
    }
}

/// What a message of protobuf is sent as. Other formats (grpc-web above all) frame otherwise.
const PROTOBUF: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

/// It is part of every key.
const LONGEST_PATH: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_method_is_one() {
        for path in ["/catalog.Catalog/Product", "/Catalog/Product", "/a.b.C/d_1"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        let long = format!("/a/{}", "b".repeat(600));
        let wrong = [
            "",
            "/",
            "//",
            "/a",
            "/a/",
            "a/b",
            "/a/b/",
            "/a/b/c",
            "/a b/c",
            "/a/b?c",
            "/\u{e4}/b",
            &long,
        ];
        for path in wrong {
            let refused = check(path).expect_err(path);
            assert!(refused.to_string().contains(&format!("{path:?}")), "{refused}");
        }
    }

    #[test]
    fn what_is_never_fresh_is_never_stale() {
        let method = CachedMethod::fresh_for(Duration::ZERO).stale_if_error(Duration::from_secs(9));
        assert_eq!(method.windows_of(Code::Ok).map(|windows| windows.life()), Some(Duration::ZERO));
    }

    #[test]
    fn the_time_of_a_status_does_not_touch_that_of_another() {
        let method = CachedMethod::fresh_for(Duration::from_secs(60))
            .stale_if_error(Duration::from_secs(9))
            .status(Code::NotFound, Duration::from_secs(5));
        let of = |code| method.windows_of(code).map(|windows| windows.life().as_secs());
        assert_eq!(
            [of(Code::Ok), of(Code::NotFound), of(Code::Internal)],
            [Some(69), Some(5), None]
        );
    }
}
