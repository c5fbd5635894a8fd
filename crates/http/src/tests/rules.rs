//! Any fields, for the rules alone.

use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, CONNECTION, COOKIE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};

use super::grammar::{ResponseSpec, append, request_fields};
use crate::rules::{
    Consent, Credentials, Defaults, Demand, Slice, Storing, Times, add_validators, fields_for_one,
    freshen, invalidated, invalidated_groups, is_not_modified, names_others, not_modified_headers,
    on_arrival, slice, storable_headers, storing, surrogate_keys, variant, vary,
    without_conditions,
};
use bellwether_testkit::fuzz::{Choices, fuzz};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_700_000)
}

fn at_once() -> Times {
    Times { request_time: now(), response_time: now() }
}

fn status(choices: &mut Choices) -> StatusCode {
    let statuses = [200, 404, 301, 204, 302, 500, 206, 304, 201, 599, 412];
    StatusCode::from_u16(statuses[choices.below(statuses.len())]).expect("a status")
}

/// The fields of a request, one of which may be changed.
fn request(choices: &mut Choices) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in request_fields(choices, now()) {
        let is_changed = choices.one_in(8);
        let value = if is_changed { choices.mutated_text(&value, "\"e0\", *") } else { value };
        append(&mut headers, name, value.as_bytes());
    }
    headers
}

/// The fields of a stored response.
fn stored(choices: &mut Choices) -> HeaderMap {
    let mut headers = ResponseSpec::any(choices, now()).headers();
    if choices.one_in(2) {
        append(
            &mut headers,
            "etag",
            choices.pick(&["\"e0\"", "W/\"e0\"", "\"e1\"", "e0"]).as_bytes(),
        );
    }
    if choices.one_in(4) {
        append(&mut headers, "content-length", choices.pick(&["10", "0", "x"]).as_bytes());
    }
    headers
}

#[test]
fn fuzzed_responses_are_stored_as_they_permit_and_for_no_longer() {
    fuzz("HTTP, storing", 96, 1, |choices| {
        let (request, status) = (request(choices), status(choices));
        let spec = ResponseSpec::any(choices, now());
        let storing = storing(&request, status, &spec.headers(), at_once(), &Defaults::default());
        let (Storing::Keep(terms) | Storing::Validate(terms, _)) = &storing else { return };
        assert!(![206, 304, 412].contains(&status.as_u16()), "{storing:?}");
        assert!(terms.vary.is_sorted_by_key(|name| name.as_str()), "{storing:?}");
        assert!(!terms.vary.contains(&COOKIE) && !terms.vary.contains(&AUTHORIZATION));
        if spec.is_broken {
            return;
        }
        assert!(!spec.is_for_one(), "{spec:?}");
        assert!(spec.is_for_all() || !request.contains_key(AUTHORIZATION), "{spec:?}");
        assert!(spec.states_consent() || !request.contains_key(COOKIE), "{spec:?}");
        assert_eq!(terms.freshness().as_secs(), spec.freshness(status), "{spec:?}");
        let stale = [terms.stale.while_revalidate, terms.stale.if_error].map(|time| time.as_secs());
        let most = spec.stale_windows();
        assert!(stale[0] <= most[0] && stale[1] <= most[1], "{spec:?}: {stale:?}");
        let named = spec.vary.iter().all(|name| terms.vary.iter().any(|given| given == name));
        assert!(named, "{spec:?}: {:?}", terms.vary);
    });
}

/// The bytes of a part of a body, by the text of its range alone.
fn part_of(range: &str, length: u64) -> Option<(u64, u64)> {
    // A member of a list may have spaces around it (RFC 9110, section 5.6.1).
    let range = range.strip_prefix("bytes=")?.trim_matches([' ', '\t']);
    let (first, last) = range.split_once('-')?;
    let (first, last) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => (first, last.min(length.checked_sub(1)?)),
        (Ok(first), Err(_)) => (first, length.checked_sub(1)?),
        (Err(_), Ok(count)) => (length.saturating_sub(count), length.checked_sub(1)?),
        _ => return None,
    };
    Some((first, last))
}

#[test]
fn fuzzed_conditions_and_ranges_give_no_part_that_is_not_there() {
    fuzz("HTTP, conditions", 128, 1, |choices| {
        let (request, stored, status) = (request(choices), stored(choices), status(choices));
        let length = choices.below(2_000) as u64 >> choices.below(10);
        if let Slice::Part { first, last } = slice(&request, &stored, length) {
            assert!(first <= last && last < length, "{request:?}: {first}-{last} of {length}");
            let range = request[RANGE].to_str().expect("a text");
            if let Some(part) = part_of(range, length) {
                assert_eq!(part, (first, last), "{range} of {length}");
            }
            let condition = request.get(IF_RANGE);
            let is_weak = |tag: &http::HeaderValue| tag.as_bytes().starts_with(b"W/");
            assert!(condition.is_none_or(|tag| !is_weak(tag)), "{condition:?}");
        }
        if is_not_modified(&request, status, &stored) {
            assert_eq!(status, StatusCode::OK);
            let tags: Vec<_> = request.get_all(IF_NONE_MATCH).iter().collect();
            let text =
                |tag: &http::HeaderValue| String::from_utf8_lossy(tag.as_bytes()).into_owned();
            let tags: String = tags.into_iter().map(text).collect();
            let kept = stored.get(ETAG).map(text).unwrap_or_default();
            let is_kept = tags.contains(kept.trim_start_matches("W/")) && !kept.is_empty();
            assert!(tags.is_empty() || tags.contains('*') || is_kept, "{tags} {kept}");
        }
        let mut validating = without_conditions(&request);
        assert!(!validating.contains_key(RANGE) && !validating.contains_key(IF_NONE_MATCH));
        if add_validators(&mut validating, &stored) {
            let tag = validating.get(IF_NONE_MATCH);
            assert!(tag.is_none() || tag == stored.get(ETAG));
        }
        assert!(!not_modified_headers(&stored).contains_key("content-length"));
    });
}

#[test]
fn fuzzed_fields_of_one_connection_and_of_one_caller_are_not_stored() {
    const NEVER: [&str; 5] = ["connection", "keep-alive", "te", "transfer-encoding", "age"];
    fuzz("HTTP, fields", 128, 1, |choices| {
        let mut response = stored(choices);
        let connection = choices.pick(&["close, x-one", "x-two", "X-One", "\"x-one", "keep-alive"]);
        if choices.one_in(2) {
            let value = choices.mutated(connection.as_bytes(), b", x-two");
            append(
                &mut response,
                "connection",
                if choices.one_in(2) { &value } else { connection.as_bytes() },
            );
        }
        append(&mut response, NEVER[choices.below(5)], b"1");
        let former = stored(choices);
        for kept in [storable_headers(&response), freshen(&former, &response)] {
            for name in &NEVER[..4] {
                assert!(!kept.contains_key(*name), "{response:?}: {name}");
            }
            let named = response.get(CONNECTION).and_then(|named| named.to_str().ok());
            if named == Some("close, x-one") && !former.contains_key("x-one") {
                assert!(!kept.contains_key("x-one"), "{response:?}");
            }
        }
        for (name, value) in &fields_for_one(&response, &[]) {
            assert!(
                response.get_all(name).iter().any(|sent| sent == value),
                "{response:?}: {name}"
            );
        }
        _ = on_arrival(&response, at_once());
        _ = surrogate_keys(&response, &HeaderName::from_static("cdn-cache-control"));
    });
}

#[test]
fn fuzzed_requests_select_the_same_variant_only_with_the_same_fields() {
    fuzz("HTTP, vary", 128, 1, |choices| {
        let response = ResponseSpec::any(choices, now());
        let Some(names) = vary(&response.headers()) else { return };
        let requests = [request(choices), request(choices)];
        let [one, other] = requests.each_ref().map(|request| variant(&names, request));
        let is_same = |name: &HeaderName| {
            let [one, other] = requests.each_ref().map(|request| {
                let lines = request.get_all(name).iter().map(|line| line.as_bytes());
                let text = String::from_utf8_lossy(&lines.collect::<Vec<_>>().join(&b","[..]))
                    .to_lowercase();
                let parts = text.split(',').map(str::trim).map(str::to_owned);
                let is_list = name == "accept-language";
                let parts = parts.filter(|part| !is_list || !part.is_empty()).collect::<Vec<_>>();
                (request.contains_key(name), parts)
            });
            one == other
        };
        // Quotation marks may hide a comma, and the case of a letter may count: then these differ more often.
        assert!(one != other || names.iter().all(is_same), "{requests:?} {one:?}");
        let [demand, _] =
            requests.each_ref().map(|request| Demand::of(request, &Defaults::default()));
        assert!(!demand.no_cache || !demand.accepts(Duration::ZERO, Some(Duration::MAX)));
        let has_credentials = Credentials::default().are_in(&requests[0]);
        assert_eq!(demand.may_share(Consent::Unsaid), !has_credentials);
        _ = names_others(&requests[0]);
    });
}

#[test]
fn fuzzed_locations_invalidate_nothing_of_another_origin() {
    let target: Uri = "http://shop:80/a/item?q=1".parse().expect("a target");
    fuzz("HTTP, locations", 96, 1, |choices| {
        let references = [
            "/other",
            "item/../x?y",
            "//shop/x",
            "http://shop/x",
            "HTTP://SHOP:80/y",
            "http://bank/x",
            "//bank",
            "?z",
            "../../..",
            "",
            "https://shop/x",
            "http://shop:81/x",
            "/a//b",
            "/%zz",
        ];
        let mut headers = HeaderMap::new();
        for name in ["location", "content-location"] {
            let (one, other) = (choices.pick(&references), choices.pick(&references));
            let reference =
                if choices.one_in(2) { choices.mutated_text(one, other) } else { one.to_owned() };
            append(&mut headers, name, reference.as_bytes());
        }
        append(
            &mut headers,
            "cache-group-invalidation",
            &choices.mutated(b"\"a\", \"b\";x=1", b"(a) ?0"),
        );
        let method = if choices.one_in(3) { Method::GET } else { Method::POST };
        let status = status(choices);
        for uri in invalidated(&target, &headers) {
            assert_eq!(
                uri.host().map(str::to_ascii_lowercase).as_deref(),
                Some("shop"),
                "{headers:?}"
            );
            assert!(uri.port_u16().is_none_or(|port| port == 80), "{headers:?}: {uri}");
            assert!(uri.path().starts_with('/'), "{headers:?}: {uri}");
        }
        let groups = invalidated_groups(&method, status, &headers);
        let is_unsafe = method == Method::POST && (status.is_success() || status.is_redirection());
        assert!(is_unsafe || groups == Some(Vec::new()));
    });
}
