//! `Target`: the target URI of a request, and its key.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use bellwether::{Key, Tag};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Uri, Version, header};

/// The target URI of a request (RFC 9110, section 7.1). Nothing in its path is decoded, since the
/// origin may distinguish URIs that differ in their escapes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// `None` if the request does not say. Over HTTP/1.1 no request does, not even over TLS.
    scheme: Option<Scheme>,
    /// In lower case, without the default port. Without a scheme, that of either is the default.
    authority: Option<Authority>,
    path_and_query: PathAndQuery,
}

impl Target {
    /// The target of a request. `None` if it is uncertain: a response to it is not stored.
    fn of(parts: &mut Parts) -> Option<Self> {
        let path_and_query = routed(parts)?;
        let (scheme, authority) = certain_of(parts)?;
        Some(Self { scheme, authority, path_and_query })
    }

    /// The target that the program names. Without an authority of its own, it has that of the request.
    /// `None` if the request contradicts itself.
    fn named(uri: &Uri, parts: &Parts) -> Option<Self> {
        stated_by(parts)?;
        let named = Self::of_uri(uri)?;
        let repeats =
            uri.authority().is_none_or(|it| with_authority(parts).authority() == Some(it));
        if !repeats {
            return Some(named);
        }
        let (scheme, authority) = certain_of(parts)?;
        Some(match named.authority {
            Some(_) => named,
            None => Self { scheme, authority, ..named },
        })
    }

    /// The target that a URI names.
    pub(super) fn of_uri(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme().cloned();
        let authority = uri.authority().map(|named| normal(named.as_str(), scheme.as_ref()));
        let authority = authority.transpose().ok()?;
        let path_and_query = uri.path_and_query().cloned();
        let path_and_query = path_and_query.unwrap_or(PathAndQuery::from_static("/"));
        Some(Self { scheme, authority, path_and_query })
    }

    /// This target once per scheme that it may have.
    fn by_scheme(&self) -> Vec<Self> {
        match &self.scheme {
            Some(_) => vec![self.clone()],
            None => SCHEMES.map(|scheme| self.by(Some(scheme))).into(),
        }
    }

    /// The URI, once per scheme that it may have.
    pub(super) fn uris(&self) -> Vec<Uri> {
        self.by_scheme().iter().map(Self::uri).collect()
    }

    fn uri(&self) -> Uri {
        let mut parts = http::uri::Parts::default();
        if let Some(authority) = &self.authority {
            parts.scheme = Some(or_http(&self.scheme).clone());
            parts.authority = Some(authority.clone());
        }
        parts.path_and_query = Some(self.path_and_query.clone());
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The keys under which a response of this target may be stored. Requests over HTTP/1.1 do not
    /// state their scheme, so their responses are stored without one.
    pub(super) fn keys(&self) -> HashSet<Key> {
        let unstated = [self.key(), self.by(None).key()];
        SCHEMES.into_iter().map(|scheme| self.by(Some(scheme)).key()).chain(unstated).collect()
    }

    /// The tag of a group of this origin.
    pub(super) fn group(&self, name: &str) -> Tag {
        let scheme = self.scheme.as_ref().map(|scheme| scheme.as_str().to_ascii_lowercase());
        let authority = self.authority.as_ref().map(Authority::as_str);
        Tag::of("http-group").with(scheme.as_deref()).with(authority).with(name)
    }

    /// The tags of a group, once per origin that this target may be of: responses to requests that did
    /// not state their scheme are stored without one.
    pub(super) fn groups(&self, name: &str) -> Vec<Tag> {
        self.by_scheme().iter().chain([&self.by(None)]).map(|target| target.group(name)).collect()
    }

    fn by(&self, scheme: Option<Scheme>) -> Self {
        let authority = self.authority.as_ref();
        let authority = authority.and_then(|named| normal(named.as_str(), scheme.as_ref()).ok());
        Self { scheme, authority, path_and_query: self.path_and_query.clone() }
    }

    /// The key of its stored response. The origin sees whether a request states its scheme, and may answer with a
    /// redirect to another.
    pub(super) fn key(&self) -> Key {
        let authority = self.authority.as_ref().map(Authority::as_str);
        let path = self.path_and_query.path();
        let query = self.path_and_query.query();
        let scheme = self.scheme.as_ref().map(Scheme::as_str);
        let key = Key::of("http").with(scheme).with(authority);
        within_bounds(key.with(path).with(query))
    }
}

const SCHEMES: [Scheme; 2] = [Scheme::HTTP, Scheme::HTTPS];

fn or_http(scheme: &Option<Scheme>) -> &Scheme {
    scheme.as_ref().unwrap_or(&Scheme::HTTP)
}

/// The key, or one made of its digest if it is longer than a key may be.
pub(super) fn within_bounds(key: Key) -> Key {
    if key.byte_len() <= Key::MAX_BYTES {
        return key;
    }
    Key::of("http-long").with(key.digest().as_bytes())
}

/// The function by which the program makes the target URI of a request, if there is one.
#[derive(Clone, Default)]
pub(super) struct TargetUri(Option<Arc<UriOf>>);

type UriOf = dyn Fn(&Parts) -> Option<Uri> + Send + Sync;

impl TargetUri {
    pub(super) fn by(uri_of: impl Fn(&Parts) -> Option<Uri> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(uri_of)))
    }

    /// The target of a request, if it is certain.
    pub(super) fn target_of(&self, parts: &mut Parts) -> Option<Target> {
        match &self.0 {
            Some(uri_of) => Target::named(&uri_of(parts)?, parts),
            None => Target::of(parts),
        }
    }
}

/// The path and query of a request as the layer sees them, with the prefix that nested routers took
/// off. `None` if that prefix is uncertain.
#[cfg_attr(
    not(feature = "axum"),
    allow(clippy::needless_pass_by_ref_mut, reason = "axum's extractors ask for it")
)]
pub(super) fn routed(parts: &mut Parts) -> Option<PathAndQuery> {
    let seen = parts.uri.path_and_query().cloned()?;
    #[cfg(feature = "axum")]
    let seen = super::router::with_prefix(parts, seen)?;
    Some(seen)
}

/// The scheme and the authority that a request states. `None` if they are uncertain: the request
/// contradicts itself, or middleware has removed the authority of a request over HTTP/2, which has no
/// `Host`.
fn certain_of(parts: &Parts) -> Option<(Option<Scheme>, Option<Authority>)> {
    let (scheme, authority) = stated_by(parts)?;
    let is_certain = authority.is_some() || parts.version < Version::HTTP_2;
    is_certain.then_some((scheme, authority))
}

/// The scheme and the authority that a request states, if it does. `None` if its URI and `Host`
/// contradict each other, or one of them cannot be read.
fn stated_by(parts: &Parts) -> Option<(Option<Scheme>, Option<Authority>)> {
    let uri = with_authority(parts);
    let scheme = uri.scheme().cloned();
    let normal = |text: Option<&str>| text.map(|text| normal(text, scheme.as_ref())).transpose();
    let stated = normal(uri.authority().map(Authority::as_str)).ok()?;
    let host = normal(host(&parts.headers)?).ok()?;
    if stated.is_some() && host.is_some() && stated != host {
        return None;
    }
    Some((scheme, stated.or(host)))
}

/// The host that a request is for, without the default port. The outer `None` stands for one that is
/// uncertain, the inner one for a request that states none.
pub(super) fn host_of(parts: &Parts) -> Option<Option<Authority>> {
    certain_of(parts).map(|(_, authority)| authority)
}

/// Writes the host of a request as keys have it. The origin answers for all requests with that key, so
/// it must not see how one of them writes it.
pub(super) fn normalize_host(parts: &mut Parts) {
    let scheme = with_authority(parts).scheme().cloned();
    let normal = |stated: &str| normal(stated, scheme.as_ref()).ok();
    if let Some(Some(stated)) = host(&parts.headers)
        && let Some(stated) = normal(stated)
        && let Ok(stated) = HeaderValue::from_str(stated.as_str())
    {
        parts.headers.insert(header::HOST, stated);
    }
    rewrite(parts, |uri| {
        let stated = uri.authority.take();
        uri.authority = stated.as_ref().and_then(|it| normal(it.as_str())).or(stated);
    });
}

/// Changes the URI of a request, and the one with which it came to the first router.
pub(super) fn rewrite(parts: &mut Parts, change: impl Fn(&mut http::uri::Parts)) {
    let rewrite = |uri: &mut Uri| {
        let mut changed = uri.clone().into_parts();
        change(&mut changed);
        if let Ok(changed) = Uri::from_parts(changed) {
            *uri = changed;
        }
    };
    rewrite(&mut parts.uri);
    #[cfg(feature = "axum")]
    if let Some(uri) = super::router::original_uri_mut(&mut parts.extensions) {
        rewrite(uri);
    }
}

/// The URI of a request, or the original one if only that has an authority: middleware that
/// rewrites the path may leave the authority out.
fn with_authority(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if parts.uri.authority().is_none()
        && let Some(uri) = super::router::original_uri(&parts.extensions)
    {
        return uri;
    }
    &parts.uri
}

/// The value of `Host`, if there is one. The outer `None` stands for several values, or one that
/// cannot be read.
fn host(headers: &HeaderMap) -> Option<Option<&str>> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Some(None),
        (Some(host), None) => host.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

/// An authority in lower case, without the default port of its scheme. Without a scheme, that of
/// either is left out.
fn normal(authority: &str, scheme: Option<&Scheme>) -> Result<Authority, ()> {
    let is_lower = !authority.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower: Cow<'_, str> =
        if is_lower { authority.into() } else { authority.to_ascii_lowercase().into() };
    let defaults: &[&str] = match scheme {
        None => &[":80", ":443"],
        Some(scheme) if *scheme == Scheme::HTTPS => &[":443"],
        Some(_) => &[":80"],
    };
    let lower = defaults.iter().find_map(|port| lower.strip_suffix(port)).unwrap_or(&lower);
    let authority: Authority = lower.parse().map_err(|_| ())?;
    // A response to a request with user information in its authority may be for that user only.
    if authority.as_str().contains('@') { Err(()) } else { Ok(authority) }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(uri: &str, host: &[&str]) -> Option<Key> {
        let mut request = Request::get(uri);
        for host in host {
            request = request.header(header::HOST, *host);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        Target::of(&mut parts).map(|target| target.key())
    }

    #[test]
    fn a_target_has_one_key_however_it_is_written() {
        let plain = key("/a?b", &["shop.example"]);
        assert!(plain.is_some());
        assert_eq!(plain, key("/a?b", &["SHOP.example:80"]));
        assert_eq!(key("http://a/", &[]), key("http://A:80/", &["a"]));
        assert_eq!(key("/", &["a:443"]), key("/", &["a"]));
    }

    #[test]
    fn nothing_is_decoded_and_nothing_is_left_out() {
        let keys = ["/a", "/a?", "/a?b", "/A", "/%61", "/a/", "/a;b", "//a"]
            .map(|uri| key(uri, &["a"]).unwrap());
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other != one), "{at}");
        }
        assert_ne!(key("/", &["a"]), key("/", &["a:8080"]));
        let by_scheme = ["/", "http://a/", "https://a/"].map(|uri| key(uri, &["a"]));
        assert!((0..3).all(|at| by_scheme[at] != by_scheme[(at + 1) % 3]));
    }

    #[test]
    fn what_may_be_kept_of_a_target_is_by_either_scheme_and_by_its_own() {
        let keys = |uri| Target::of_uri(&Uri::from_static(uri)).unwrap().keys();
        assert_eq!(keys("http://a:80/"), keys("https://a:443/"));
        assert!(keys("http://a:443/").contains(&key("/", &["a:443"]).unwrap()));
        assert_eq!(
            keys("https://a/"),
            ["/", "http://a/", "https://a/"].map(|uri| key(uri, &["a"]).unwrap()).into()
        );
        assert!(keys("other://a/").contains(&key("other://a/", &[]).unwrap()));
    }

    #[test]
    fn an_origin_is_known_by_its_scheme_and_by_a_request_that_states_none() {
        let target = |uri| Target::of_uri(&Uri::from_static(uri)).unwrap();
        let meets = |one: &Target, other: &Target| one.groups("a").contains(&other.group("a"));
        let [http, https, unstated] = ["http://a:80/x", "https://A:443/y", "a"].map(target);
        assert!(meets(&http, &http) && meets(&https, &https) && meets(&unstated, &unstated));
        assert!(meets(&http, &unstated) && meets(&https, &unstated));
        assert!(meets(&unstated, &http) && meets(&unstated, &https));
        assert!(!meets(&http, &https) && !meets(&https, &http));
        for other in ["http://b/", "http://a:8080/", "https://a.b/", "https://a:80/"] {
            for one in [&http, &https] {
                assert!(!meets(one, &target(other)) && !meets(&target(other), one), "{other}");
            }
        }
    }

    #[test]
    fn a_request_that_contradicts_itself_has_no_key() {
        assert_eq!(key("http://a/", &["b"]), None);
        assert_eq!(key("/", &["a", "b"]), None);
        assert_eq!(key("/", &["user@a"]), None);
        assert_eq!(key("/", &["a b"]), None);
    }

    /// Middleware may have replaced its URI by a path.
    #[test]
    fn a_request_over_http_2_without_an_authority_has_no_key() {
        let request = Request::get("/x").version(Version::HTTP_2).body(()).unwrap();
        assert_eq!(Target::of(&mut request.into_parts().0), None);
    }

    #[test]
    fn a_target_that_the_program_names_has_the_authority_of_the_request_or_its_own() {
        let named = |named: &'static str, uri: &str, host: &str| {
            let request = Request::get(uri).header(header::HOST, host).body(()).unwrap();
            let target = Target::named(&Uri::from_static(named), &request.into_parts().0)?;
            Some(target.uri().to_string())
        };
        let is = |uri: &str| Some(uri.to_owned());
        assert_eq!(named("/x", "/y", "A:80"), is("http://a/x"));
        assert_eq!(named("/x", "https://a/y", "a"), is("https://a/x"));
        assert_eq!(named("/x", "http://a/y", "b"), None);
        assert_eq!(named("http://a/x", "http://a/y", "b"), None);
        assert_eq!(named("https://c/x", "http://a/y", "b"), None);
        assert_eq!(named("https://c/x", "http://a/y", "a"), is("https://c/x"));
    }

    #[test]
    fn a_named_authority_fills_in_for_one_that_a_request_over_http_2_has_lost() {
        let request = Request::get("/y").version(Version::HTTP_2).body(()).unwrap();
        let (parts, ()) = request.into_parts();
        assert_eq!(Target::named(&Uri::from_static("/x"), &parts), None);
        assert!(Target::named(&Uri::from_static("https://c/x"), &parts).is_some());
    }

    #[test]
    fn a_name_too_long_for_a_key_has_one_all_the_same() {
        let long = format!("/{}", "a".repeat(3_000));
        let one = key(&long, &["a"]).unwrap();
        assert!(one.byte_len() <= Key::MAX_BYTES);
        assert_ne!(Some(one), key(&format!("{long}a"), &["a"]));
    }
}
