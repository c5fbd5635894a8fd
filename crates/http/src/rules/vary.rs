//! Selecting header fields: which stored response suits which request (RFC 9111, section 4.1).

use http::header::{
    ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, COOKIE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::lists::{elements, members};
use super::terms::Credentials;

/// How many fields `Vary` may name: more than any origin has a use for.
const MOST_NAMES: usize = 16;

/// Lists with case-insensitive members, in which empty members mean nothing.
const LISTS: [HeaderName; 2] = [ACCEPT_CHARSET, ACCEPT_LANGUAGE];

/// The fields that `Vary` names, sorted and without duplicates. `None` if no other request can
/// select the response: by `*`, by too many fields, and by cookies or credentials, which hardly any
/// two requests share.
pub(super) fn nominated(
    response: &HeaderMap,
    credentials: &Credentials,
) -> Option<Vec<HeaderName>> {
    let mut names = vary(response)?;
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    let is_shared = names.iter().all(|name| !credentials.contain(name));
    (is_shared && names.len() <= MOST_NAMES).then_some(names)
}

/// The fields that `Vary` names. `None` if it names `*`, or cannot be read.
///
/// A response with a `Content-Encoding` varies by `Accept-Encoding`, though its origin may forget to say so.
pub(crate) fn vary(response: &HeaderMap) -> Option<Vec<HeaderName>> {
    let is_encoded = members(response, &CONTENT_ENCODING)
        .any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
    let names = members(response, &VARY).map(|name| HeaderName::from_bytes(name).ok());
    let names = names.chain(is_encoded.then_some(Some(ACCEPT_ENCODING)));
    names.map(|name| name.filter(|name| name != "*")).collect()
}

/// The content codings that a request accepts, in the order of their names. Without their weights: all
/// clients like the smallest one best. Clients that accept `gzip` are given no older coding. What is refused
/// matters beside a `*`, which stands for all that is not named, and if it is `identity`.
fn codings(request: &HeaderMap) -> Vec<u8> {
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for member in members(request, &ACCEPT_ENCODING) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let name = if name == b"x-gzip" { b"gzip".to_vec() } else { name };
        let is_zero = |weight: &[u8]| {
            let number = weight.strip_prefix(b"q=").or_else(|| weight.strip_prefix(b"Q="));
            number.is_some_and(|number| number.iter().all(|byte| b"0.".contains(byte)))
        };
        if parts.any(is_zero) { refused.push(name) } else { accepted.push(name) }
    }
    let has = |codings: &[Vec<u8>], name: &[u8]| codings.iter().any(|coding| coding == name);
    let refuses_identity =
        has(&refused, b"identity") || has(&refused, b"*") && !has(&accepted, b"identity");
    let (takes_others, takes_gzip) = (has(&accepted, b"*"), has(&accepted, b"gzip"));
    refused.retain(|name| takes_others && name != b"*" && name != b"identity");
    refused.extend(refuses_identity.then(|| b"identity".to_vec()));
    let is_older = |name: &[u8]| [&b"deflate"[..], b"compress", b"x-compress"].contains(&name);
    accepted.retain(|name| name != b"identity" && !(takes_gzip && is_older(name)));
    if accepted.is_empty() && !refuses_identity {
        accepted.push(b"identity".to_vec());
    }
    for codings in [&mut accepted, &mut refused] {
        codings.sort_unstable();
        codings.dedup();
    }
    accepted.extend(refused.into_iter().map(|name| [&name[..], b";q=0"].concat()));
    accepted.join(&b", "[..])
}

/// The values of a request's selecting header fields, each in one form. Requests with equal values
/// select the same response. An absent field has no entry.
pub(crate) fn variant(names: &[HeaderName], request: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let present = names.iter().filter(|name| request.contains_key(*name));
    present.map(|name| (name.as_str().to_owned(), one_form(name, request))).collect()
}

/// The values of a field in one of the ways that mean the same: joined, with one space behind each comma,
/// and languages, encodings and charsets in their usual case. Nothing else is changed in a field that is
/// not known to be a list: an origin may distinguish `,a` from `a`.
fn one_form(name: &HeaderName, request: &HeaderMap) -> Vec<u8> {
    if *name == ACCEPT_ENCODING {
        return codings(request);
    }
    if !LISTS.contains(name) {
        return elements(request, name).collect::<Vec<_>>().join(&b", "[..]);
    }
    let list = members(request, name).collect::<Vec<_>>().join(&b", "[..]);
    match str::from_utf8(&list) {
        Ok(text) if *name == ACCEPT_LANGUAGE && text.is_ascii() => languages(text).into(),
        _ => list.to_ascii_lowercase(),
    }
}

/// Writes the fields of a request in one form, each in one line. An origin may read the first line only,
/// or compare letter by letter, and its response is for all requests that say the same.
pub(crate) fn in_one_form(request: &mut HeaderMap) {
    for name in request.keys().cloned().collect::<Vec<_>>() {
        let is_list = name == ACCEPT_ENCODING || LISTS.contains(&name);
        if name == COOKIE || !is_list && request.get_all(&name).iter().count() == 1 {
            continue;
        }
        if let Ok(value) = HeaderValue::from_bytes(&one_form(&name, request)) {
            request.insert(name, value);
        }
    }
}

/// Language ranges in the case that RFC 5646, section 2.1.1, recommends: `zh-Hant-TW`.
fn languages(list: &str) -> String {
    let mut written = String::with_capacity(list.len());
    let (mut nth, mut is_extension) = (0, false);
    for part in list.split_inclusive(['-', ',', ';']) {
        let subtag = part.trim_end_matches(['-', ',', ';']).trim_start();
        let lower = part.to_ascii_lowercase();
        match subtag.len() {
            2 if nth > 0 && !is_extension => written.push_str(&part.to_ascii_uppercase()),
            4 if nth > 0 && !is_extension => {
                written.push_str(&lower[..1].to_ascii_uppercase());
                written.push_str(&lower[1..]);
            }
            _ => written.push_str(&lower),
        }
        nth += 1;
        is_extension |= subtag.len() == 1;
        if part.ends_with(',') {
            (nth, is_extension) = (0, false);
        } else if part.ends_with(';') {
            is_extension = true;
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::super::tests::samples::read;
    use super::*;

    fn names(vary: &'static str) -> Option<Vec<HeaderName>> {
        let credentials = Credentials::default().with([HeaderName::from_static("x-user")]);
        nominated(&read(vary), &credentials)
    }

    /// Whether two requests agree in the fields that `vary` names.
    fn both(
        vary: &'static str,
        one: &'static str,
        other: &'static str,
    ) -> [Vec<(String, Vec<u8>)>; 2] {
        let names = names(vary).expect("names");
        [one, other].map(|request| variant(&names, &read(request)))
    }

    #[track_caller]
    fn assert_alike(vary: &'static str, one: &'static str, other: &'static str) {
        let [one, other] = both(vary, one, other);
        assert_eq!(one, other);
    }

    #[track_caller]
    fn assert_different(vary: &'static str, one: &'static str, other: &'static str) {
        let [one, other] = both(vary, one, other);
        assert_ne!(one, other);
    }

    #[test]
    fn names_are_sorted_and_each_is_there_once() {
        assert_eq!(
            names("vary: Foo, bar\nvary: BAR, , foo"),
            Some(vec![HeaderName::from_static("bar"), HeaderName::from_static("foo"),])
        );
        assert_eq!(names("vary:"), Some(Vec::new()));
        assert_eq!(names("date: {0}"), Some(Vec::new()));
    }

    #[test]
    fn a_star_and_too_many_names_are_rejected() {
        for vary in [
            "*",
            "*, *",
            "*, Foo",
            "Foo, *",
            ", *",
            "a b",
            "Cookie",
            "AUTHORIZATION",
            "X-Api-Key",
            "a, X-User",
        ] {
            assert_eq!(names(format!("vary: {vary}").leak()), None, "{vary}");
        }
        let list =
            |count: usize| (0..count).map(|n| format!("f{n}")).collect::<Vec<_>>().join(", ");
        assert!(names(format!("vary: {}", list(MOST_NAMES)).leak()).is_some());
        assert_eq!(names(format!("vary: {}", list(MOST_NAMES + 1)).leak()), None);
    }

    #[test]
    fn requests_that_say_the_same_are_alike() {
        assert_alike("vary: foo", "foo: 1\nother: 2", "foo: 1\nother: 3");
        assert_alike("vary: foo", "foo: 1, 2", "foo: 1\nfoo: 2");
        assert_alike("vary: foo", "foo: 1,2", "foo:  1, 2 ");
        assert_alike("vary: foo, bar, baz", "foo: 1\nbaz: 789", "baz: 789\nfoo: 1");
        assert_alike(
            "vary: accept-language",
            "accept-language: en, de",
            "accept-language: eN ,  De,,",
        );
    }

    #[test]
    fn requests_that_say_the_same_are_written_in_one_way() {
        for (given, written) in [
            ("accept-language: DE-de,EN ;q=0.5,, zh-hant-tw", "de-DE, en ;q=0.5, zh-Hant-TW"),
            ("accept-language: de\naccept-language: *;q=0.1", "de, *;q=0.1"),
            (
                "accept-language: en-a-bb-x-cccc, x-aa, sl-NEDIS-1994",
                "en-a-bb-x-cccc, x-aa, sl-nedis-1994",
            ),
            ("accept-language: a-\u{20ac}A", "a-\u{20ac}a"),
            ("accept-encoding: GZIP,Br;Q=1", "br, gzip"),
            ("foo: A,b\nfoo: \"c, D\"", "A, b, \"c, D\""),
            ("foo: A,b", "A,b"),
        ] {
            let mut request = read(given);
            let name = request.keys().next().expect("a field").clone();
            let before = variant(std::slice::from_ref(&name), &request);
            in_one_form(&mut request);
            assert_eq!(request.get_all(&name).iter().collect::<Vec<_>>(), [written], "{given}");
            assert_eq!(variant(&[name], &request), before, "{given}");
        }
        let mut cookies = read("cookie: a=1\ncookie: b=2");
        in_one_form(&mut cookies);
        assert_eq!(cookies.get_all("cookie").iter().count(), 2);
    }

    #[test]
    fn an_encoded_response_varies_by_the_codings_of_its_request() {
        assert_eq!(names("content-encoding: gzip"), Some(vec![ACCEPT_ENCODING]));
        assert_eq!(
            names("content-encoding: br\nvary: Accept-Encoding"),
            Some(vec![ACCEPT_ENCODING])
        );
        assert_eq!(names("content-encoding: identity"), Some(Vec::new()));
        assert_eq!(names("content-encoding: gzip\nvary: *"), None);
    }

    /// RFC 9110, section 12.5.3.
    #[test]
    fn accepted_codings_have_one_form() {
        for (given, expected) in [
            ("gzip", "gzip"),
            ("gzip, deflate", "gzip"),
            ("deflate, gzip;q=1.0", "gzip"),
            ("X-Gzip", "gzip"),
            ("deflate", "deflate"),
            ("gzip, deflate, br", "br, gzip"),
            ("br;q=1.0, gzip;q=0.8, deflate;q=0.1", "br, gzip"),
            ("gzip, deflate, br, zstd", "br, gzip, zstd"),
            ("deflate, gzip, br, zstd", "br, gzip, zstd"),
            ("br;q=0, gzip", "gzip"),
            ("gzip;q=0.000", "identity"),
            ("identity", "identity"),
            ("", "identity"),
            ("*", "*"),
            ("gzip, *;q=0", "gzip, identity;q=0"),
            ("identity;q=0, br", "br, identity;q=0"),
            ("identity;q=1, *;q=0", "identity"),
            ("*;q=0, gzip, identity", "gzip"),
            ("*;q=0", "identity;q=0"),
            ("X-Gzip;q=0, deflate;q=0, *", "*, deflate;q=0, gzip;q=0"),
            ("*, identity;q=0", "*, identity;q=0"),
        ] {
            let mut request = read(format!("accept-encoding: {given}").leak());
            in_one_form(&mut request);
            assert_eq!(request[ACCEPT_ENCODING], expected, "{given}");
            let again = codings(&request);
            assert_eq!(again, expected.as_bytes(), "its own form: {given}");
        }
    }

    #[test]
    fn requests_that_say_something_else_are_different() {
        assert_different("vary: foo", "foo: 1", "foo: 2");
        assert_different("vary: foo", "foo: a", "foo: A");
        assert_different("vary: foo", "foo: 1, 2", "foo: 2, 1");
        assert_different("vary: foo", "foo: \"a, b\"", "foo: \"a,b\"");
        assert_different("vary: foo", "foo: 1", "bar: 1");
        assert_different("vary: foo, bar", "foo: 1", "bar: 1");
        assert_different("vary: foo", "foo:", "bar: 1");
        assert_different("vary: foo", "foo: ,a", "foo: a");
        assert_different("vary: foo", "foo: a,", "foo: a");
    }
}
