//! `CachedMethod`: how the answers of one method are cached, and whether one is stored, by its status and
//! its `cache-control`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::FirstError;
use bellwether::codec::Cacheability;
use bellwether::{ConfigError, Lifetimes, Tag};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, PROXY_AUTHORIZATION, SET_COOKIE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method};
use tonic::Code;

use super::message::PREFIX;
use super::method_use::MethodUse;

/// How the answers of one method are cached, for
/// [`GrpcCacheLayerBuilder::method`](super::GrpcCacheLayerBuilder::method).
///
/// ```
/// # use std::time::Duration;
/// # use bellwether_grpc::CachedMethod;
/// # fn product() -> CachedMethod {
/// let product = CachedMethod::fresh_for(Duration::from_secs(60))
///     .stale_if_error(Duration::from_secs(3_600))
///     .status(tonic::Code::NotFound, Duration::from_secs(5))
///     .metadata("x-tenant");
/// # product
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CachedMethod {
    lifetimes: Lifetimes,
    /// Other statuses than `OK` that are stored, and their freshness lifetimes.
    statuses: Vec<(Code, Duration)>,
    /// Metadata that is part of the key, in the order of the names.
    pub(super) metadata: Vec<HeaderName>,
    /// Of these, those without which a request bypasses the cache.
    pub(super) required: Vec<HeaderName>,
    pub(super) is_by_authority: bool,
    /// Metadata with which a request bypasses the cache.
    credentials: Vec<HeaderName>,
    ignores_credentials: bool,
    tags_of: Option<TagsOfMessage>,
    /// Of the method that was named last with these options.
    pub(super) calls: Arc<MethodUse>,
    pub(super) wrong: FirstError,
}

/// The function that makes the tags of a request of its message.
#[derive(Clone)]
struct TagsOfMessage(Arc<DecodeTags>);

type DecodeTags = dyn Fn(&[u8]) -> Option<Vec<Tag>> + Send + Sync;

impl CachedMethod {
    /// Answers with status `OK` are fresh for this long, at most 366 days. Zero stores nothing:
    /// concurrent callers share a load.
    ///
    /// A server can decide for one answer, by `cache-control` in its initial metadata: `no-store` and
    /// `private` make it one for its caller only, `max-age` sets its lifetime, and `no-cache` makes
    /// that zero.
    pub fn fresh_for(ttl: Duration) -> Self {
        Self {
            lifetimes: Lifetimes::fresh_for(ttl),
            statuses: Vec::new(),
            metadata: Vec::new(),
            required: Vec::new(),
            is_by_authority: false,
            credentials: CREDENTIALS.into(),
            ignores_credentials: false,
            tags_of: None,
            calls: Arc::default(),
            wrong: FirstError::default(),
        }
    }

    /// As [`ReadThroughLayerBuilder::stale_while_revalidate`](bellwether::service::ReadThroughLayerBuilder::stale_while_revalidate),
    /// with its default.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.lifetimes = self.lifetimes.stale_while_revalidate(window);
        self
    }

    /// As [`ReadThroughLayerBuilder::stale_if_error`](bellwether::service::ReadThroughLayerBuilder::stale_if_error), with its
    /// default. The statuses that count as errors are on the [guide](super::guide#statuses).
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.lifetimes = self.lifetimes.stale_if_error(window);
        self
    }

    /// Stores answers with this status too (negative caching). They are fresh for this long, and
    /// never served stale. For [`Code::Ok`] this sets the freshness lifetime.
    ///
    /// Default: only `OK` is stored. An object is often requested shortly before it is created, and a
    /// stored `NOT_FOUND` would hide it.
    #[must_use]
    pub fn status(mut self, code: Code, ttl: Duration) -> Self {
        self.statuses.retain(|(named, _)| *named != code);
        self.statuses.push((code, ttl));
        self
    }

    /// Makes metadata of a request part of the key: all values of this name. A request without it
    /// bypasses the cache: what sets it may stand below the layer by mistake.
    /// Everything on which the answer depends belongs into the key.
    /// [`build`](super::GrpcCacheLayerBuilder::build) fails if this is not a valid name of metadata.
    /// `host` is none: see [`authority`](Self::authority).
    ///
    /// Default: none. The key is the method, the message, and the encodings that the caller accepts.
    #[must_use]
    pub fn metadata(self, name: &str) -> Self {
        let mut this = self.optional_metadata(name);
        this.required.extend(metadata_name(name));
        this
    }

    /// As [`metadata`](Self::metadata), but requests without it share an answer: for a language or
    /// a feature flag, and not for what tells users apart.
    ///
    /// Default: none.
    #[must_use]
    pub fn optional_metadata(mut self, name: &str) -> Self {
        let mut names = metadata_name(name).map(|name| [&self.metadata[..], &[name]].concat());
        if let Ok(names) = &mut names {
            names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
            names.dedup();
        }
        self.wrong.set(&mut self.metadata, names);
        self
    }

    /// Makes the authority of a request part of the key: its `:authority` (or `host`), in lower case
    /// and without the ports 80 and 443. A request whose `host` contradicts its `:authority` bypasses
    /// the cache.
    ///
    /// Default: off. Set it if the answer depends on the host name by which a client calls.
    #[must_use]
    pub fn authority(mut self) -> Self {
        self.is_by_authority = true;
        self
    }

    /// Metadata that counts as credentials too: a request that has it bypasses the cache, unless it
    /// is [part of the key](Self::metadata). [`build`](super::GrpcCacheLayerBuilder::build) fails if
    /// one is not a valid name of metadata.
    ///
    /// Default: `authorization`, `proxy-authorization`, `cookie`, `x-api-key` and `x-auth-token`.
    /// These always count, as the usual names.
    #[must_use]
    pub fn credentials<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let more: Result<Vec<_>, _> = names.into_iter().map(metadata_name).collect();
        let all = more.map(|more| [&self.credentials[..], &more[..]].concat());
        self.wrong.set(&mut self.credentials, all);
        self
    }

    /// Caches requests with [credentials](Self::credentials) like any other. Use it only for methods
    /// that give all their callers the same answer, and authenticate callers above the layer: see the
    /// [guide](crate::guide#credentials-first).
    ///
    /// Default: such a request bypasses the cache, since its answer may be for its caller only.
    #[must_use]
    pub fn ignoring_credentials(mut self) -> Self {
        self.ignores_credentials = true;
        self
    }

    /// Sets a function that makes the tags of an answer of the request message, as protobuf encodes
    /// it: names that answers share, to [invalidate](super::GrpcHandle::invalidate_tag) or
    /// [expire](super::GrpcHandle::expire_tag) all of them at once. They are known before the load,
    /// which gives the strongest guarantee: see `bellwether::guide::tags`.
    ///
    /// If the function fails, the request bypasses the cache, so that the handler can reject the
    /// message, and no answer is stored without its tags. A request with more than [`Tags::MOST`](bellwether::store::Tags::MOST) tags fails with
    /// `INTERNAL`.
    ///
    /// Default: no tags. The function is called for each request of the method, hits too.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use bellwether::Tag;
    /// use bellwether_grpc::CachedMethod;
    /// use prost::Message;
    ///
    /// #[derive(Clone, PartialEq, Message)]
    /// struct ProductRequest {
    ///     #[prost(uint64, tag = "1")]
    ///     sku: u64,
    ///     #[prost(string, tag = "2")]
    ///     shelf: String,
    /// }
    ///
    /// let product = CachedMethod::fresh_for(Duration::from_secs(60)).tags(|message| {
    ///     let request = ProductRequest::decode(message)?;
    ///     Ok::<_, prost::DecodeError>([Tag::of("catalog"), Tag::of("shelf").with(request.shelf)])
    /// });
    /// # let _ = product;
    /// ```
    #[must_use]
    pub fn tags<F, T, E>(mut self, tags_of: F) -> Self
    where
        F: Fn(&[u8]) -> Result<T, E> + Send + Sync + 'static,
        T: IntoIterator<Item = Tag>,
    {
        let tags_of = move |message: &[u8]| Some(tags_of(message).ok()?.into_iter().collect());
        self.tags_of = Some(TagsOfMessage(Arc::new(tags_of)));
        self
    }

    /// The tags of a request with this message, with its prefix. `None` if they cannot be known.
    pub(super) fn tags_of(&self, message: &[u8]) -> Option<Vec<Tag>> {
        match &self.tags_of {
            None => Some(Vec::new()),
            Some(TagsOfMessage(tags_of)) => tags_of(message.get(PREFIX..)?),
        }
    }

    /// The authority of a request if it is part of the key. The outer `None` stands for one that is
    /// uncertain.
    pub(super) fn authority_of(&self, parts: &Parts) -> Option<Option<String>> {
        if self.is_by_authority { authority(parts) } else { Some(None) }
    }

    /// The lifetimes of an answer with this status. `None` if it is not stored.
    pub(super) fn lifetimes_of(&self, code: Code) -> Option<Lifetimes> {
        let named = self.statuses.iter().find(|(named, _)| *named == code).map(|(_, ttl)| *ttl);
        match (code, named) {
            (Code::Ok, None) => Some(lasting(self.lifetimes.ttl(), &self.lifetimes)),
            (Code::Ok, Some(ttl)) => Some(lasting(ttl, &self.lifetimes)),
            (_, ttl) => ttl.map(Lifetimes::fresh_for),
        }
    }

    /// Whether a request with this head may be answered from the cache.
    pub(super) fn takes(&self, parts: &Parts) -> bool {
        let is_grpc = || {
            let content_type = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
            content_type.is_some_and(|given| PROTOBUF.contains(&given))
        };
        parts.method == Method::POST
            && parts.uri.query().is_none()
            && is_grpc()
            && self.required.iter().all(|name| parts.headers.contains_key(name))
            && !self.is_personal(&parts.headers)
            && self.authority_of(parts).is_some()
    }

    fn is_personal(&self, headers: &HeaderMap) -> bool {
        let unkeyed = |name| headers.contains_key(name) && !self.metadata.contains(name);
        !self.ignores_credentials && self.credentials.iter().any(unkeyed)
    }
}

/// Shows nothing of the function.
impl fmt::Debug for TagsOfMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagsOfMessage")
    }
}

/// The same stale windows with another freshness lifetime. If that is zero, they are zero too.
pub(super) fn lasting(ttl: Duration, lifetimes: &Lifetimes) -> Lifetimes {
    if ttl.is_zero() {
        return Lifetimes::fresh_for(ttl);
    }
    Lifetimes::fresh_for(ttl)
        .stale_while_revalidate(lifetimes.while_revalidate())
        .stale_if_error(lifetimes.if_error())
}

/// The methods that are cached, by their paths.
pub(super) type Methods = HashMap<String, Arc<CachedMethod>>;

pub(super) fn metadata_name(name: &str) -> Result<HeaderName, ConfigError> {
    if name.eq_ignore_ascii_case(HOST.as_str()) || name == ":authority" {
        let reason = "over HTTP/2 the host is not metadata: use `authority()`";
        return Err(ConfigError::Key { given: name.to_owned(), reason });
    }
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| no_metadata(name))
}

pub(super) fn no_metadata(name: &str) -> ConfigError {
    ConfigError::Key { given: name.to_owned(), reason: "this is not valid metadata" }
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
            let reason = "this is not the path of a method, as in `/package.Service/Method`";
            Err(ConfigError::Key { given: path.to_owned(), reason })
        }
    }
}

/// Metadata that is credentials by default.
const CREDENTIALS: [HeaderName; 5] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
];

/// The content types of protobuf messages. Other formats, such as grpc-web, have other frames.
const PROTOBUF: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

/// The longest path of a method, which is part of every key.
const LONGEST_PATH: usize = 512;

/// The status of an answer: in its trailers, or in its head for a trailers-only response. An answer
/// without a status is `UNKNOWN`, as gRPC demands.
pub(super) fn status(head: &HeaderMap, trailers: Option<&HeaderMap>) -> Code {
    let said = trailers.and_then(|trailers| trailers.get(GRPC_STATUS));
    said.or_else(|| head.get(GRPC_STATUS))
        .map_or(Code::Unknown, |status| Code::from_bytes(status.as_bytes()))
}

/// The cacheability of a complete answer.
pub(super) fn classify(method: &CachedMethod, code: Code, head: &HeaderMap) -> Cacheability {
    let Some(lifetimes) = method.lifetimes_of(code) else {
        return classify_unnamed(code);
    };
    match stated_ttl(head) {
        _ if head.contains_key(SET_COOKIE) => Cacheability::PrivateKey,
        Err(()) => Cacheability::PrivateKey,
        Ok(Some(ttl)) => Cacheability::KeepFor(lasting(ttl, &lifetimes)),
        Ok(None) => Cacheability::KeepFor(lifetimes),
    }
}

/// The cacheability of an answer with a status that the method does not name.
fn classify_unnamed(code: Code) -> Cacheability {
    match code {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::Unknown
        | Code::ResourceExhausted
        | Code::DataLoss
        | Code::Aborted => Cacheability::Failure,
        Code::Unauthenticated | Code::PermissionDenied => Cacheability::PrivateKey,
        // Metadata that is not part of the key may have caused it, so other callers may get another
        // answer.
        Code::Cancelled
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Cacheability::Unconfirmed,
        Code::Ok | Code::NotFound => Cacheability::KeepFor(Lifetimes::fresh_for(Duration::ZERO)),
    }
}

/// The ttl that the server states by `cache-control`, if any. An error if it forbids to share the answer.
fn stated_ttl(head: &HeaderMap) -> Result<Option<Duration>, ()> {
    let mut ttl = None::<Duration>;
    for value in head.get_all(CACHE_CONTROL) {
        // A value that cannot be read may forbid sharing.
        for directive in value.to_str().map_err(drop)?.split(',') {
            let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
            let stated = match name.trim().to_ascii_lowercase().as_str() {
                "no-store" | "private" => return Err(()),
                "no-cache" => 0,
                // A time that cannot be read is zero (RFC 9111, section 4.2.1).
                "max-age" => argument.trim().trim_matches('"').parse::<u32>().unwrap_or(0),
                _ => continue,
            };
            let stated = Duration::from_secs(stated.into());
            ttl = Some(ttl.map_or(stated, |other| other.min(stated)));
        }
    }
    Ok(ttl)
}

const GRPC_STATUS: &str = "grpc-status";

/// The authority of a request, if it has one. The outer `None` stands for one that is uncertain:
/// `:authority` and `host` contradict each other, or one has user information.
pub(super) fn authority(parts: &Parts) -> Option<Option<String>> {
    let hosts = parts.headers.get_all(HOST).iter().map(|host| host.to_str().ok());
    let stated = parts.uri.authority().map(|stated| Some(stated.as_str()));
    let mut named = hosts.chain(stated).map(|named| normal_authority(named?));
    let Some(first) = named.next() else { return Some(None) };
    (first.is_some() && named.all(|other| other == first)).then_some(first)
}

/// An authority in lower case and without a usual port, which not all clients write.
pub(super) fn normal_authority(named: &str) -> Option<String> {
    let named: Authority = named.parse().ok().filter(|_| !named.contains('@'))?;
    let lower = named.as_str().to_ascii_lowercase();
    let bare = lower.strip_suffix(":80").or_else(|| lower.strip_suffix(":443"));
    Some(bare.unwrap_or(&lower).to_owned())
}

#[cfg(test)]
mod tests_of_method {
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
        assert_eq!(
            method.lifetimes_of(Code::Ok).map(|lifetimes| lifetimes.life()),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn the_time_of_a_status_does_not_touch_that_of_another() {
        let method = CachedMethod::fresh_for(Duration::from_secs(60))
            .stale_if_error(Duration::from_secs(9))
            .status(Code::NotFound, Duration::from_secs(5));
        let of = |code| method.lifetimes_of(code).map(|lifetimes| lifetimes.life().as_secs());
        assert_eq!(
            [of(Code::Ok), of(Code::NotFound), of(Code::Internal)],
            [Some(69), Some(5), None]
        );
    }
}

#[cfg(test)]
mod tests_of_classify {
    use http::HeaderValue;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn head(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))])
    }

    fn kept_for(cacheability: Cacheability) -> Option<u64> {
        match cacheability {
            Cacheability::KeepFor(lifetimes) => Some(lifetimes.ttl().as_secs()),
            _ => None,
        }
    }

    fn of(code: Code, head: &HeaderMap) -> Cacheability {
        let method = CachedMethod::fresh_for(MINUTE).status(Code::NotFound, MINUTE * 2);
        classify(&method, code, head)
    }

    #[test]
    fn only_named_statuses_are_stored() {
        let none = HeaderMap::new();
        assert_eq!(kept_for(of(Code::Ok, &none)), Some(60));
        assert_eq!(kept_for(of(Code::NotFound, &none)), Some(120));
        for number in 1..=16 {
            let code = Code::from_i32(number);
            let cacheability = of(code, &none);
            let expected = match number {
                5 => continue,
                2 | 4 | 8 | 10 | 13 | 14 | 15 => Cacheability::Failure,
                7 | 16 => Cacheability::PrivateKey,
                _ => Cacheability::Unconfirmed,
            };
            assert_eq!(cacheability, expected, "{code:?}");
        }
    }

    #[test]
    fn the_status_is_that_of_the_trailers_or_else_of_the_head() {
        let five = head("grpc-status", "5");
        let none = HeaderMap::new();
        assert_eq!(status(&none, Some(&five)), Code::NotFound);
        assert_eq!(status(&five, None), Code::NotFound);
        assert_eq!(status(&five, Some(&none)), Code::NotFound);
        assert_eq!(status(&five, Some(&head("grpc-status", "0"))), Code::Ok);
        assert_eq!(status(&none, None), Code::Unknown);
        assert_eq!(status(&head("grpc-status", "seven"), None), Code::Unknown);
    }

    #[test]
    fn the_server_can_forbid_storing_and_set_the_lifetime() {
        for private in ["no-store", "PRIVATE", "max-age=5, no-store", "private=\"x\""] {
            assert_eq!(
                of(Code::Ok, &head("cache-control", private)),
                Cacheability::PrivateKey,
                "{private}"
            );
        }
        assert_eq!(of(Code::Ok, &head("set-cookie", "a=b")), Cacheability::PrivateKey);
        let times = [("max-age=5", 5), ("public, Max-Age = 7", 7), ("max-age=9, max-age=3", 3)];
        let none = [("no-cache", 0), ("max-age=x", 0), ("max-age=5, no-cache", 0), ("public", 60)];
        for (said, ttl) in times.into_iter().chain(none) {
            assert_eq!(kept_for(of(Code::Ok, &head("cache-control", said))), Some(ttl), "{said}");
        }
        assert_eq!(of(Code::Internal, &head("cache-control", "no-store")), Cacheability::Failure);
    }
}

#[cfg(test)]
mod tests_of_authority {
    use super::*;

    #[test]
    fn an_authority_counts_if_all_that_name_it_agree() {
        let of = |uri: &str, hosts: &[&str]| {
            let mut request = http::Request::post(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            authority(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(of("/a/b", &[]), Some(None));
        let agreed = Some(Some("a.example".to_owned()));
        assert_eq!(of("http://A.example:80/a/b", &[]), agreed);
        assert_eq!(of("/a/b", &["a.example:443"]), agreed);
        assert_eq!(of("http://a.example/a/b", &["A.example", "a.example"]), agreed);
        assert_eq!(of("http://[::1]:8080/a/b", &[]), Some(Some("[::1]:8080".to_owned())));
        for (uri, hosts) in [
            ("http://a.example/a/b", &["b.example"][..]),
            ("/a/b", &["a.example", "b.example"]),
            ("http://user@a.example/a/b", &[]),
            ("/a/b", &["a example"]),
        ] {
            assert_eq!(of(uri, hosts), None, "{uri} {hosts:?}");
        }
    }
}
