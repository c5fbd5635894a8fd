//! Which header fields are stored, which are about one connection only (RFC 9110, section 7.6.1), and
//! offers to upgrade to another protocol (section 7.8).

use http::header::{
    AGE, CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::lists::{Directives, members};

/// Fields that are always about one connection. `Trailer` is not among them, since trailers are stored.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HTTP2_SETTINGS,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Fields of a response that are not stored either (RFC 9111, section 3.1): `Age` is stored as a number.
const OF_ONE_RESPONSE: [HeaderName; 4] = [
    AGE,
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    PROXY_AUTHORIZATION,
];

/// The fields of a response as they are stored: without those about its connection, those that
/// `Connection` names, and those that `no-cache` names.
pub(crate) fn storable_headers(response: &HeaderMap) -> HeaderMap {
    let mut kept = without_connection(response, response.clone());
    for_one(response).for_each(|name| _ = kept.remove(name));
    kept
}

/// The fields that `no-cache` names (RFC 9111, section 5.2.2.4), and those that the program does not
/// store: they are for the caller whose request loaded the response.
pub(crate) fn fields_for_one(response: &HeaderMap, unstored: &[HeaderName]) -> HeaderMap {
    let mut own = HeaderMap::new();
    for name in for_one(response).chain(unstored.iter().cloned()) {
        if !own.contains_key(&name) {
            let values = response.get_all(&name);
            values.iter().for_each(|value| _ = own.append(name.clone(), value.clone()));
        }
    }
    without_connection(response, own)
}

/// The names in `no-cache`, of either field.
fn for_one(response: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let directives =
        [true, false].map(|follows_cdn| Directives::of_response(response, follows_cdn));
    directives.into_iter().flat_map(|it| it.fields_of("no-cache").collect::<Vec<_>>())
}

/// Some fields of a response without those about its connection.
fn without_connection(response: &HeaderMap, mut fields: HeaderMap) -> HeaderMap {
    let named = members(response, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok());
    let never = HOP_BY_HOP.into_iter().chain(OF_ONE_RESPONSE);
    named.chain(never).for_each(|name| _ = fields.remove(name));
    fields
}

/// Whether `Connection` names a field that is not always about one connection. The next hop may
/// remove that field, so the response may not suit other requests that have it. A value that cannot
/// be read may name any field.
///
/// The layer itself removes none: a client could remove what middleware above the layer has set.
pub(crate) fn names_others(request: &HeaderMap) -> bool {
    members(request, &CONNECTION).any(|name| !is_known(name))
}

/// Removes the fields that are always about one connection, since a load is for all its waiters.
pub(crate) fn remove_hop_by_hop(request: &mut HeaderMap) {
    HOP_BY_HOP.iter().chain(&[TRAILER]).for_each(|name| _ = request.remove(name));
}

fn is_known(name: &[u8]) -> bool {
    let is_field = |field: &HeaderName| name.eq_ignore_ascii_case(field.as_ref());
    HOP_BY_HOP.iter().chain(&[TRAILER]).any(is_field) || name.eq_ignore_ascii_case(b"close")
}

/// Removes an offer of `h2c` from a request, if that is all it offers. A server may ignore an offer,
/// and clients that offer `h2c` accept HTTP/1.1 too.
pub(crate) fn ignore_offer_of_h2c(request: &mut HeaderMap) {
    let is_h2c = |protocol: &[u8]| protocol.eq_ignore_ascii_case(b"h2c");
    if !request.contains_key(UPGRADE) || !members(request, &UPGRADE).all(is_h2c) {
        return;
    }
    let is_of_offer = |option: &&[u8]| {
        [&UPGRADE, &HTTP2_SETTINGS].iter().any(|name| option.eq_ignore_ascii_case(name.as_ref()))
    };
    let left: Vec<_> =
        members(request, &CONNECTION).filter(|option| !is_of_offer(option)).collect();
    let left = HeaderValue::from_bytes(&left.join(&b", "[..]));
    for name in [UPGRADE, HTTP2_SETTINGS, CONNECTION] {
        request.remove(name);
    }
    if let Ok(left) = left
        && !left.is_empty()
    {
        request.insert(CONNECTION, left);
    }
}

#[cfg(test)]
mod tests_of_fields {
    use super::super::tests::samples::read;
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

#[cfg(test)]
mod tests_of_hop_by_hop {
    use super::super::tests::samples::{headers, read};
    use super::*;

    #[test]
    fn what_is_for_one_connection_by_its_nature_may_be_named() {
        for line in ["", "close", "Keep-Alive", "upgrade, HTTP2-Settings", "TE , ,close"] {
            assert!(!names_others(&headers(&[("connection", line)])), "{line:?}");
        }
        assert!(!names_others(&headers(&[])));
    }

    #[test]
    fn a_connection_that_names_another_field_is_recognized() {
        for line in
            ["x-tenant", "close, Host", "cookie", "a b", "\"close\"", "\"close, x", "keep-alive;x"]
        {
            assert!(names_others(&headers(&[("connection", line)])), "{line:?}");
        }
        assert!(names_others(&read("connection: close\nconnection: authorization")));
    }

    #[test]
    fn what_is_about_one_connection_is_removed_for_a_shared_load() {
        let mut request = read("connection: te, X-Tenant\nx-tenant: a\nupgrade: h2c\nte: gzip");
        remove_hop_by_hop(&mut request);
        assert_eq!(request, headers(&[("x-tenant", "a")]));
    }
}

#[cfg(test)]
mod tests_of_upgrade {
    use super::super::tests::samples::read;
    use super::*;

    #[test]
    fn only_an_offer_of_h2c_alone_is_taken_out() {
        for (request, left) in [
            ("connection: Upgrade, HTTP2-Settings\nupgrade: h2c\nhttp2-settings: AA\na: 1", "a: 1"),
            (
                "connection: a, upgrade\nconnection: close\nupgrade: H2C, h2c",
                "connection: a, close",
            ),
            ("upgrade:\na: 1", "a: 1"),
        ] {
            let mut request = read(request);
            ignore_offer_of_h2c(&mut request);
            assert_eq!(request, read(left));
        }
        for whole in [
            "connection: upgrade\nupgrade: websocket",
            "connection: upgrade\nupgrade: h2c, websocket\nhttp2-settings: AA",
            "connection: upgrade\nupgrade: h2c/2",
            "connection: keep-alive, http2-settings\nhttp2-settings: AA",
        ] {
            let mut request = read(whole);
            ignore_offer_of_h2c(&mut request);
            assert_eq!(request, read(whole));
        }
    }
}
