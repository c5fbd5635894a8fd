//! Offers to upgrade to another protocol (RFC 9110, section 7.8).

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::lists::members;

/// Removes an offer of `h2c` from a request, if that is all it offers. A server may ignore an offer,
/// and clients that offer `h2c` accept HTTP/1.1 too.
pub(crate) fn ignore_offer_of_h2c(request: &mut HeaderMap) {
    let is_h2c = |protocol: &[u8]| protocol.eq_ignore_ascii_case(b"h2c");
    if !request.contains_key(UPGRADE) || !members(request, &UPGRADE).all(is_h2c) {
        return;
    }
    let is_of_offer = |option: &&[u8]| {
        [UPGRADE.as_str(), HTTP2_SETTINGS.as_str()]
            .iter()
            .any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
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

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

#[cfg(test)]
mod tests {
    use super::super::samples::read;
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
