//! Which header fields are stored.

use http::header::{AGE, CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE};
use http::header::{TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

use super::directives::Directives;
use super::lists::members;

/// Fields about a connection (RFC 9111, section 3.1), and `Age`, which is stored as a number.
///
/// `Trailer` is not among them, since trailers are stored.
const NEVER_KEPT: [HeaderName; 10] = [
    AGE,
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The fields of a response as they are stored: without those about its connection, those that
/// `Connection` names, and those that `no-cache` names.
pub(crate) fn storable_headers(response: &HeaderMap) -> HeaderMap {
    let mut kept = response.clone();
    let named = members(response, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok());
    named.for_each(|name| _ = kept.remove(name));
    for follows_cdn in [true, false] {
        let directives = Directives::of_response(response, follows_cdn);
        directives.fields_of("no-cache").for_each(|name| _ = kept.remove(name));
    }
    NEVER_KEPT.iter().for_each(|name| _ = kept.remove(name));
    kept
}

/// The fields that `no-cache` names: they are for the caller whose request loaded the response (RFC
/// 9111, section 5.2.2.4).
pub(crate) fn fields_for_one(response: &HeaderMap) -> HeaderMap {
    let mut own = HeaderMap::new();
    for follows_cdn in [true, false] {
        for name in Directives::of_response(response, follows_cdn).fields_of("no-cache") {
            if !own.contains_key(&name) {
                let values = response.get_all(&name);
                values.iter().for_each(|value| _ = own.append(name.clone(), value.clone()));
            }
        }
    }
    let named = members(response, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok());
    named.for_each(|name| _ = own.remove(name));
    NEVER_KEPT.iter().for_each(|name| _ = own.remove(name));
    own
}

#[cfg(test)]
mod tests {
    use super::super::samples::read;
    use super::*;

    #[test]
    fn what_is_about_the_connection_is_not_kept() {
        let response = read(
            "connection: close, X-Mine, \"odd\"\n keep-alive: 5\n x-mine: 1\n te: gzip\n upgrade: h2c
             proxy-connection: close\n proxy-authenticate: Basic\n proxy-authorization: Basic YQ==
             proxy-authentication-info: a\n transfer-encoding: chunked\n age: 5
             date: {0}\n link: <a>\n link: <b>\n trailer: x-sum\n cache-status: origin; hit",
        );
        let kept =
            read("date: {0}\n link: <a>\n link: <b>\n trailer: x-sum\n cache-status: origin; hit");
        assert_eq!(storable_headers(&response), kept);
    }

    #[test]
    fn fields_that_no_cache_names_are_not_kept() {
        let response = read("cache-control: no-cache=\"a, B\", max-age=5\n a: 1\n b: 2\n c: 3");
        let kept = read("cache-control: no-cache=\"a, B\", max-age=5\n c: 3");
        assert_eq!(storable_headers(&response), kept);
    }
}
