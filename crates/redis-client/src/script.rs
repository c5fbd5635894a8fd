//! Scripts: constant text, run by its hash.

use std::collections::HashSet;
use std::sync::Arc;

use redis::Script;

/// A Lua script: a constant text, run by its hash. Clones share both.
///
/// A server that does not know the hash is sent the text.
#[derive(Clone, Debug)]
pub struct RedisScript {
    text: Arc<str>,
    hash: Arc<str>,
}

impl RedisScript {
    /// A script with this text.
    pub fn new(text: &str) -> Self {
        let hash = Script::new(text).get_hash().into();
        Self { text: text.into(), hash }
    }

    /// A script that consists of `first`, the functions that `last` uses, and `last`.
    ///
    /// Functions are those of all protocols (`read`, `fence_at`, `has_marks`, `adds_mark`, `tell` and
    /// `server_time`) and those of these libraries, each of which may use those before it. Each call of a
    /// script creates its functions, so it has no others, and `first` ends the common case before that.
    ///
    /// A function or constant of a library is a paragraph that begins with `local`.
    pub fn linked(first: &str, libraries: &[&str], last: &str) -> Self {
        let last = without_comments(last);
        let mut used: HashSet<_> = words(&last).collect();
        let libraries = [&[include_str!("prelude.lua")], libraries].concat();
        let libraries: Vec<_> = libraries.into_iter().map(without_comments).collect();
        let paragraphs = libraries.iter().flat_map(|library| library.split("\n\n"));
        let mut parts = vec![&*last];
        for paragraph in paragraphs.collect::<Vec<_>>().into_iter().rev() {
            let declares = paragraph.split(['=', '(']).next().unwrap_or_default();
            if words(declares).any(|word| used.contains(word)) {
                used.extend(words(paragraph));
                parts.push(paragraph);
            }
        }
        let first = without_comments(first);
        parts.push(&first);
        parts.reverse();
        Self::new(&parts.join("\n"))
    }

    /// The hash by which a server knows it.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_none = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    let words = text.as_bytes().split(is_none).map(|word| str::from_utf8(word).unwrap_or_default());
    words.filter(|word| !matches!(*word, "" | "local" | "function"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_functions_that_it_uses_and_those_that_these_use() {
        let library = "-- one: of no use to two.\nlocal function one()\n  return limit\nend\n\n\
                       local limit, rest = 1, 2\n\n\
                       -- two\nlocal function two()\n  -- as far as the\n  return limit\nend\n";
        let script =
            RedisScript::linked("-- first\nreturn 0\n", &[library], "-- one\nreturn two()\n");
        let two = "local limit, rest = 1, 2\nlocal function two()\n  return limit\nend";
        assert_eq!(script.text(), format!("return 0\n{two}\nreturn two()"));
        let time = RedisScript::linked("", &[], "return server_time()");
        assert!(time.text().contains("redis.call('TIME')") && !time.text().contains("tell"));
    }
}
