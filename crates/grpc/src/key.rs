//! The key of a call: the method, the message, and what else the answer depends on.

use bellwether::Key;
use http::header::{CONTENT_TYPE, HOST, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::message::PREFIX;
use super::method::CachedMethod;

/// What the key of a call is made of, but for the encodings.
pub(super) struct CallParts<'a> {
    pub(super) path: &'a str,
    pub(super) method: &'a CachedMethod,
    /// As [`authority`](super::method::authority) gives it.
    pub(super) authority: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
    /// As it is sent, with its prefix.
    pub(super) message: &'a [u8],
}

/// The key of a call.
///
/// A key has a bound and a message may be longer, so the key has the digest of the message.
pub(super) fn key(call: &CallParts<'_>) -> Key {
    key_accepting(call, &accepted(call.headers))
}

/// All keys that the answers to a message may have: one per set of encodings that a caller can accept.
pub(super) fn keys(call: &CallParts<'_>) -> Vec<Key> {
    ways_to_accept().iter().map(|way| key_accepting(call, way)).collect()
}

fn key_accepting(call: &CallParts<'_>, accepted: &[&str]) -> Key {
    let CallParts { path, method, authority, headers, message } = *call;
    let call = Key::of("call").with(&message[PREFIX.min(message.len())..]).with(accepted.join(","));
    let call = method.metadata.iter().fold(call, |call, name| {
        let values: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        let call = call.with(name.as_str()).with(values.len());
        values.into_iter().fold(call, |call, value| call.with(value))
    });
    // No metadata is called so.
    let call = match method.is_by_authority {
        true => call.with("host").with(authority),
        false => call,
    };
    Key::of("grpc").with(path).with(call.digest().as_bytes())
}

/// The known encodings that a caller accepts, in one order: all callers like the smallest one best.
fn accepted(headers: &HeaderMap) -> Vec<&'static str> {
    let values = headers.get_all(GRPC_ACCEPT_ENCODING).iter();
    // A value that cannot be read counts as an unknown encoding.
    let tokens = values.flat_map(|value| value.to_str().unwrap_or("?").split(',').map(str::trim));
    let tokens: Vec<_> = tokens.collect();
    ENCODINGS.into_iter().filter(|known| tokens.contains(known)).collect()
}

/// Brings a request into the form that all requests with its key have. The handler answers for all of
/// them, so it must not see how one client writes what the key folds, nor a caller's timeout.
pub(super) fn normalise(parts: &mut Parts, method: &CachedMethod, authority: Option<&str>) {
    let headers = &mut parts.headers;
    headers.remove(GRPC_TIMEOUT);
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.remove(GRPC_ENCODING);
    let known = accepted(headers).join(",");
    headers.remove(GRPC_ACCEPT_ENCODING);
    if let (false, Ok(value)) = (known.is_empty(), HeaderValue::try_from(&known)) {
        headers.insert(GRPC_ACCEPT_ENCODING, value);
    }
    for name in method.metadata.iter().filter(|name| is_binary(name)) {
        let values: Vec<_> = headers.get_all(name).iter().cloned().collect();
        headers.remove(name);
        values.iter().for_each(|value| append(headers, name, value));
    }
    let Some(authority) = authority else { return };
    if let (true, Ok(host)) = (headers.contains_key(HOST), HeaderValue::from_str(authority)) {
        headers.insert(HOST, host);
    }
    let mut uri = parts.uri.clone().into_parts();
    uri.authority = uri.authority.and_then(|_| authority.parse().ok());
    if let Ok(uri) = Uri::from_parts(uri) {
        parts.uri = uri;
    }
}

/// Appends metadata as the key has it. Binary values may be padded or not, and joined by commas, which
/// means the same by the specification of gRPC over HTTP/2.
pub(super) fn append(headers: &mut HeaderMap, name: &HeaderName, value: &HeaderValue) {
    if !is_binary(name) {
        headers.append(name, value.clone());
        return;
    }
    for part in value.as_bytes().split(|letter| *letter == b',').map(<[u8]>::trim_ascii) {
        let length = part.iter().rposition(|letter| *letter != b'=').map_or(0, |last| last + 1);
        headers.extend(HeaderValue::from_bytes(&part[..length]).map(|part| (name.clone(), part)));
    }
}

fn is_binary(name: &HeaderName) -> bool {
    name.as_str().ends_with("-bin")
}

/// All sets of known encodings that a caller can accept.
fn ways_to_accept() -> Vec<Vec<&'static str>> {
    ENCODINGS.into_iter().fold(vec![Vec::new()], |mut ways, encoding| {
        ways.extend(ways.clone().into_iter().map(|way| [&way[..], &[encoding]].concat()));
        ways
    })
}

/// The field in which a caller says how long it waits.
pub(super) const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The field that says how compressed messages of a request are. Those of a cached one are not.
const GRPC_ENCODING: &str = "grpc-encoding";

const GRPC_ACCEPT_ENCODING: &str = "grpc-accept-encoding";

/// The encodings that tonic supports, the smallest first.
const ENCODINGS: [&str; 3] = ["zstd", "gzip", "deflate"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PATH: &str = "/catalog.Catalog/Product";

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn call<'a>(
        method: &'a CachedMethod,
        headers: &'a HeaderMap,
        message: &'a [u8],
    ) -> CallParts<'a> {
        CallParts { path: PATH, method, authority: None, headers, message }
    }

    fn by_tenant() -> CachedMethod {
        CachedMethod::fresh_for(Duration::from_secs(1)).metadata("x-tenant")
    }

    #[test]
    fn each_set_of_accepted_encodings_has_one_of_the_8_keys() {
        let method = by_tenant();
        let tenant = headers(&[("x-tenant", "a")]);
        let found = keys(&call(&method, &tenant, b"\0\0\0\0\x01m"));
        assert_eq!(found.len(), 8);
        for accepted in
            ["gzip", "zstd, gzip", "identity,deflate,gzip", "", "snappy,gzip", "deflate,zstd,gzip"]
        {
            let sent = headers(&[("x-tenant", "a"), (GRPC_ACCEPT_ENCODING, accepted)]);
            let key = key(&call(&method, &sent, b"\0\0\0\0\x01m"));
            assert_eq!(found.iter().filter(|found| **found == key).count(), 1, "{accepted}");
        }
    }

    #[test]
    fn everything_that_the_answer_depends_on_is_part_of_the_key() {
        let method = by_tenant();
        let key = |fields: &[_], message| key(&call(&method, &headers(fields), message));
        let all = [
            key(&[], b"\0\0\0\0\x01m"),
            key(&[], b"\0\0\0\0\x01n"),
            key(&[("x-tenant", "")], b"\0\0\0\0\x01m"),
            key(&[("x-tenant", "a")], b"\0\0\0\0\x01m"),
            key(&[("x-tenant", "a"), ("x-tenant", "b")], b"\0\0\0\0\x01m"),
            key(&[("x-tenant", "b"), ("x-tenant", "a")], b"\0\0\0\0\x01m"),
            key(&[(GRPC_ACCEPT_ENCODING, "gzip")], b"\0\0\0\0\x01m"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
        assert_eq!(key(&[("x-other", "a"), ("grpc-timeout", "1S")], b"\0\0\0\0\x01m"), all[0]);
    }

    #[test]
    fn the_longest_message_and_path_make_a_key_that_is_short_enough() {
        let path = format!("/a/{}", "b".repeat(509));
        assert!(super::super::method::check(&path).is_ok());
        let (method, none) = (by_tenant(), HeaderMap::new());
        let key = key(&CallParts { path: &path, ..call(&method, &none, &[0; 1 << 20]) });
        assert!(key.byte_len() <= Key::MAX_BYTES);
    }
}
