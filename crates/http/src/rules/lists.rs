//! Comma-separated values (RFC 9110, section 5.6.1), and the directives of `Cache-Control` and of
//! `CDN-Cache-Control`, which is a Structured Field.

use std::time::Duration;

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, FieldType, ListEntry, Parser};

/// The members of a field over all of its values, without white space around them.
pub(super) fn members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    elements(headers, name).filter(|member| !member.is_empty())
}

/// As [`members`], with empty members: a recipient that does not parse the field as a list sees them.
pub(super) fn elements<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).iter().flat_map(|line| split(line.as_bytes(), quoted_string))
}

/// The members of a list of entity tags, in which a backslash is a character like any other.
pub(super) fn entity_tags<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let tags = headers.get_all(name).iter().flat_map(|line| split(line.as_bytes(), opaque_tag));
    tags.filter(|tag| !tag.is_empty())
}

/// The elements of one value. `quoted` gets the text after a quotation mark, and returns how much of
/// it belongs to the quoted string, which may have commas of its own.
///
/// A quoted string without an end is not treated as one, so that it hides none of what follows. No
/// other quoted string is searched after it, so that the time is linear in the length of the value.
fn split(line: &[u8], quoted: fn(&[u8]) -> Option<usize>) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    let mut has_quotations = true;
    std::iter::from_fn(move || {
        let line = rest?;
        let end = end_of_member(line, |rest| {
            let length = if has_quotations { quoted(rest) } else { None };
            has_quotations = length.is_some();
            length
        });
        rest = line.get(end + 1..);
        Some(line[..end].trim_ascii())
    })
}

fn end_of_member(line: &[u8], mut quoted: impl FnMut(&[u8]) -> Option<usize>) -> usize {
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        at += match byte {
            b',' => break,
            b'"' => 1 + quoted(&line[at + 1..]).unwrap_or(0),
            _ => 1,
        };
    }
    at
}

fn quoted_string(rest: &[u8]) -> Option<usize> {
    let mut escaped = false;
    let end = rest.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map(|end| end + 1)
}

fn opaque_tag(rest: &[u8]) -> Option<usize> {
    rest.iter().position(|byte| *byte == b'"').map(|end| end + 1)
}

/// RFC 9213, section 3.1.
const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Directives with a number of seconds. In a Structured Field it must be an integer.
const OF_SECONDS: [&str; 4] = ["max-age", "s-maxage", "stale-if-error", "stale-while-revalidate"];

/// What a response forbids to every shared cache, whichever field says it.
const PROHIBITIONS: [&str; 2] = ["private", "no-store"];

/// The longest time that is distinguished from longer ones (RFC 9111, section 1.2.2).
const LONGEST: u64 = 1 << 31;

/// A name in lower case, and its argument without quotation marks.
type Directive = (String, Option<String>);

/// The cache directives of a message.
#[derive(Debug)]
pub(super) struct Directives {
    list: Vec<Directive>,
    /// Whether they come from `CDN-Cache-Control`, which overrides `Cache-Control` and `Expires`.
    pub(super) is_targeted: bool,
    /// Whether the field that does not count otherwise says `no-store`.
    other_forbids_storing: bool,
}

impl Directives {
    /// The directives of `Cache-Control`.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let list = members(headers, &CACHE_CONTROL).map(directive).collect();
        Self { list, is_targeted: false, other_forbids_storing: false }
    }

    /// The directives of a response: of `Cache-Control`, or, if this cache follows it and it can be
    /// read, of `CDN-Cache-Control` (RFC 9213, section 2.2). A prohibition in either field holds.
    pub(super) fn of_response(headers: &HeaderMap, follows_cdn: bool) -> Self {
        let targeted = targeted(headers).filter(|_| follows_cdn);
        let is_targeted = targeted.is_some();
        let mut list = targeted.unwrap_or_else(|| Self::of(headers).list);
        let other = if is_targeted { CACHE_CONTROL } else { CDN_CACHE_CONTROL };
        let prohibits = |(name, _): &Directive| PROHIBITIONS.contains(&name.as_str());
        let prohibitions: Vec<_> =
            members(headers, &other).map(directive).filter(prohibits).collect();
        let other_forbids_storing = prohibitions.iter().any(|(name, _)| name == "no-store");
        list.extend(prohibitions);
        Self { list, is_targeted, other_forbids_storing }
    }

    /// Whether they say `no-store`, and not `must-understand` in the same field: a cache that understands
    /// the status then goes by the other directives (RFC 9111, section 5.2.2.3).
    pub(super) fn forbid_storing(&self) -> bool {
        self.other_forbids_storing || self.has("no-store") && !self.has("must-understand")
    }

    /// Whether there are no directives.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// Whether a directive is present and not limited to certain fields. A limit that cannot be read
    /// counts as none.
    pub(super) fn has_for_all_fields(&self, name: &str) -> bool {
        let is_limit = |list: &str| list.split(',').all(|field| field_name(field).is_some());
        self.all(name).any(|list| !list.is_some_and(is_limit))
    }

    /// The fields that a directive is limited to.
    pub(super) fn fields_of(&self, name: &str) -> impl Iterator<Item = HeaderName> {
        let lists = self.all(name).flatten().flat_map(|list| list.split(','));
        lists.filter_map(field_name)
    }

    /// The time of a directive. A time that cannot be read is zero, and the shortest of several
    /// counts, so that a mistake never prolongs freshness.
    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        self.all(name).map(|value| value.and_then(delta_seconds).unwrap_or_default()).min()
    }

    fn all(&self, name: &str) -> impl Iterator<Item = Option<&str>> {
        self.list.iter().filter(move |(said, _)| said == name).map(|(_, value)| value.as_deref())
    }
}

/// The value of a field that has exactly one.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// A number of seconds. A larger one than can be told from others counts as the largest that can.
pub(super) fn delta_seconds(text: &str) -> Option<Duration> {
    digits(text).map(|seconds| Duration::from_secs(seconds.min(LONGEST)))
}

/// A number that has digits only. One that does not fit counts as the largest that does.
pub(super) fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A Structured Field (RFC 9651), if it can be read.
pub(super) fn structured<T: FieldType>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    Parser::new(&lines.collect::<Vec<_>>().join(&b", "[..])).parse().ok()
}

fn field_name(field: &str) -> Option<HeaderName> {
    field.trim().parse().ok()
}

fn directive(member: &[u8]) -> Directive {
    let member = String::from_utf8_lossy(member);
    let (name, value) = match member.split_once('=') {
        Some((name, value)) => (name, Some(unquoted(value))),
        None => (&*member, None),
    };
    // White space is not allowed around the equals sign. Then a time is not read, but a prohibition
    // still holds.
    let value = value.map(|value| if name.ends_with([' ', '\t']) { String::new() } else { value });
    (name.trim().to_ascii_lowercase(), value)
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let Some(inner) = inner else { return value.to_owned() };
    let mut escaped = false;
    let kept = inner.chars().filter(|letter| {
        escaped = *letter == '\\' && !escaped;
        !escaped
    });
    kept.collect()
}

/// The directives of `CDN-Cache-Control`, if it is a dictionary and not empty.
fn targeted(headers: &HeaderMap) -> Option<Vec<Directive>> {
    let dictionary = structured::<Dictionary>(headers, &CDN_CACHE_CONTROL)?;
    let said = dictionary.iter().filter_map(|(name, value)| member(name.as_str(), value));
    (!dictionary.is_empty()).then(|| said.collect())
}

/// A member of `CDN-Cache-Control` as a directive. One whose value has the wrong type is ignored (RFC 9213,
/// section 2.1), except that a prohibition holds with any value but "false".
fn member(name: &str, value: &ListEntry) -> Option<Directive> {
    let ListEntry::Item(item) = value else { return None };
    let value = match &item.bare_item {
        BareItem::Integer(seconds) if OF_SECONDS.contains(&name) => {
            Some(u64::try_from(i64::from(*seconds)).ok()?.to_string())
        }
        _ if OF_SECONDS.contains(&name) => return None,
        BareItem::Boolean(false) => return None,
        BareItem::String(fields) => Some(fields.as_str().to_owned()),
        _ => None,
    };
    Some((name.to_owned(), value))
}

#[cfg(test)]
mod tests_of_lists {
    use std::time::{Duration, Instant};

    use http::header::{CACHE_CONTROL, IF_NONE_MATCH};

    use super::super::tests::samples::headers;
    use super::*;

    #[track_caller]
    fn assert_members(line: &str, expected: &[&str]) {
        let found = headers(&[("cache-control", line)]);
        let found = members(&found, &CACHE_CONTROL).map(String::from_utf8_lossy);
        assert_eq!(found.collect::<Vec<_>>(), expected, "{line:?}");
    }

    #[test]
    fn commas_and_white_space_part_members() {
        assert_members("", &[]);
        assert_members(" , ,, ", &[]);
        assert_members("a", &["a"]);
        assert_members(" a\t,b ,, c=1 ", &["a", "b", "c=1"]);
    }

    #[test]
    fn a_comma_in_a_quotation_parts_nothing() {
        assert_members(r#"a="b, c", d"#, &[r#"a="b, c""#, "d"]);
        assert_members(r#"a="b\", c", d"#, &[r#"a="b\", c""#, "d"]);
        assert_members(r#"a="b\\", c"#, &[r#"a="b\\""#, "c"]);
    }

    #[test]
    fn a_quotation_without_an_end_hides_nothing() {
        assert_members(r#"a="b, no-store"#, &[r#"a="b"#, "no-store"]);
        assert_members(r#"a="b\", no-store"#, &[r#"a="b\""#, "no-store"]);
    }

    #[test]
    fn the_lines_of_a_field_are_read_one_after_the_other() {
        let lines = headers(&[("cache-control", "a, b"), ("cache-control", "c")]);
        assert_eq!(members(&lines, &CACHE_CONTROL).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    }

    #[test]
    fn a_backslash_in_an_entity_tag_is_a_character_like_any_other() {
        let tags = headers(&[("if-none-match", r#""a\", "b,c""#)]);
        let tags: Vec<_> = entity_tags(&tags, &IF_NONE_MATCH).collect();
        assert_eq!(tags, [&br#""a\""#[..], br#""b,c""#]);
    }

    /// Otherwise the value would be read to its end from each quotation mark.
    #[test]
    fn a_line_of_many_quotation_marks_is_read_once() {
        let line = format!("\"{}", r#"\""#.repeat(200_000));
        let started = Instant::now();
        assert_members(&line, &[&line]);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

#[cfg(test)]
mod tests_of_directives {
    use super::super::tests::samples::{headers, read};
    use super::*;

    fn of(line: &str) -> Directives {
        Directives::of(&headers(&[("cache-control", line)]))
    }

    #[test]
    fn names_are_read_in_any_case_and_values_without_their_quotation_marks() {
        let said = of(r#"Max-AGE="60", EXT="a\"b", No-Store"#);
        assert_eq!(said.seconds("max-age"), Some(Duration::from_secs(60)));
        assert_eq!(said.list[1], ("ext".to_owned(), Some("a\"b".to_owned())));
        assert!(said.has("no-store") && !said.has("no-cache"));
    }

    #[test]
    fn of_several_times_the_shortest_counts_and_what_cannot_be_read_is_none() {
        for (line, seconds) in [
            ("max-age=5", 5),
            ("max-age=5, max-age=3", 3),
            ("max-age=3, max-age=5", 3),
            ("max-age=5, max-age=x", 0),
            ("max-age", 0),
            ("max-age=", 0),
            ("max-age=99999999999999999999999", LONGEST),
        ] {
            assert_eq!(of(line).seconds("max-age"), Some(Duration::from_secs(seconds)), "{line}");
        }
        assert_eq!(of("s-maxage=5").seconds("max-age"), None);
    }

    #[test]
    fn white_space_before_the_sign_makes_a_time_unreadable_and_no_prohibition() {
        assert_eq!(of("max-age =5").seconds("max-age"), Some(Duration::ZERO));
        assert!(of("private =\"a\"").has("private"));
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_no_limit() {
        for line in ["no-cache", "no-cache=\"\"", "no-cache=\"a b\"", "no-cache=\"a\", no-cache"] {
            assert!(of(line).has_for_all_fields("no-cache"), "{line}");
        }
        let limited = of("no-cache=\"Set-Cookie, b\"");
        assert!(!limited.has_for_all_fields("no-cache"));
        assert_eq!(limited.fields_of("no-cache").collect::<Vec<_>>(), ["set-cookie", "b"]);
    }

    #[test]
    fn a_targeted_field_counts_if_it_is_followed_and_can_be_read() {
        let of = |targeted, follows| {
            let fields = [("cdn-cache-control", targeted), ("cache-control", "max-age=9")];
            let said = Directives::of_response(&headers(&fields), follows);
            (said.is_targeted, said.seconds("max-age").map(|time| time.as_secs()))
        };
        assert_eq!(of("max-age=5", true), (true, Some(5)));
        assert_eq!(of("max-age=5", false), (false, Some(9)));
        for unreadable in ["", "max-age=", "Max-Age=5", "max-age=5,"] {
            assert_eq!(of(unreadable, true), (false, Some(9)), "{unreadable:?}");
        }
    }

    #[test]
    fn a_prohibition_holds_in_either_field() {
        for (targeted, general) in
            [("max-age=5", "No-Store"), ("no-store", "max-age=5"), ("No-Store,", "max-age=5")]
        {
            let fields = [("cdn-cache-control", targeted), ("cache-control", general)];
            for follows in [true, false] {
                let said = Directives::of_response(&headers(&fields), follows);
                assert!(said.has("no-store"), "{targeted} {general}");
            }
        }
    }

    #[test]
    fn the_lines_of_a_targeted_field_are_one_dictionary() {
        let lines = read("cdn-cache-control: max-age=5\ncdn-cache-control: no-cache=\"a\"");
        let said = Directives::of_response(&lines, true);
        assert_eq!(said.seconds("max-age"), Some(Duration::from_secs(5)));
        assert_eq!(said.fields_of("no-cache").collect::<Vec<_>>(), ["a"]);
    }
}
