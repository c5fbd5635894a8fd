//! Selecting header fields: which stored response suits which request (RFC 9111, section 4.1).

use http::header::{ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, VARY};
use http::{HeaderMap, HeaderName};

use super::lists::{elements, members};
use super::terms::Credentials;

/// How many fields `Vary` may name: more than any origin has a use for.
const MOST_NAMES: usize = 16;

/// Lists with case-insensitive members, in which empty members mean nothing.
const LISTS: [HeaderName; 3] = [ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE];

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
pub(crate) fn vary(response: &HeaderMap) -> Option<Vec<HeaderName>> {
    let names = members(response, &VARY).map(|name| HeaderName::from_bytes(name).ok());
    names.map(|name| name.filter(|name| name != "*")).collect()
}

/// The normalized values of a request's selecting header fields. Requests with equal values select
/// the same response.
///
/// The values of a field are joined, and white space around commas is removed, since it means
/// nothing. An absent field has no entry. Nothing else is normalized in a field that is not known to
/// be a list: an origin may distinguish `,a` from `a`.
pub(crate) fn variant(names: &[HeaderName], request: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let present = names.iter().filter(|name| request.contains_key(*name));
    present.map(|name| (name.as_str().to_owned(), normalized(name, request))).collect()
}

fn normalized(name: &HeaderName, request: &HeaderMap) -> Vec<u8> {
    let joined = |elements: Vec<&[u8]>| elements.join(&b","[..]);
    if LISTS.contains(name) {
        joined(members(request, name).collect()).to_ascii_lowercase()
    } else {
        joined(elements(request, name).collect())
    }
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
