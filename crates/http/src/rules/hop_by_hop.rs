//! Fields that are about one connection only (RFC 9110, section 7.6.1).

use http::header::{CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

use super::lists::members;

/// Options of `Connection` that name no field.
const OPTIONS: [&[u8]; 1] = [b"close"];

/// Fields that are always about one connection.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

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
    HOP_BY_HOP.iter().for_each(|name| _ = request.remove(name));
}

fn is_known(name: &[u8]) -> bool {
    let is_field = HOP_BY_HOP.iter().any(|field| name.eq_ignore_ascii_case(field.as_ref()));
    is_field || OPTIONS.iter().any(|option| name.eq_ignore_ascii_case(option))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{headers, read};
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
