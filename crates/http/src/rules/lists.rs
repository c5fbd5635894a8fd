//! Comma-separated values (RFC 9110, section 5.6.1).

use http::{HeaderMap, HeaderName};

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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use http::header::{CACHE_CONTROL, IF_NONE_MATCH};

    use super::super::samples::headers;
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
