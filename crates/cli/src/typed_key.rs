//! `TypedKey`: a key as people type it.

use std::fmt;

use bellwether::Key;
use uuid::Uuid;

use crate::CliError;

/// A key by the name of its cache, with the version, and its parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypedKey {
    pub(crate) kind: String,
    parts: Vec<String>,
}

impl TypedKey {
    pub(crate) fn new(kind: &str, parts: &[String]) -> Self {
        Self { kind: kind.to_owned(), parts: parts.to_vec() }
    }

    /// The key, of parts that say their types or have those that they look like: see `--help`.
    pub(crate) fn key(&self) -> Result<Key, CliError> {
        self.parts.iter().try_fold(Key::of(&self.kind), |key, part| {
            let wrong = || format!("`{part}` is not of the type that it names");
            Ok(match part.split_once(':') {
                Some(("int", it)) => key.with(it.parse::<i128>().map_err(|_| wrong())?),
                Some(("text", it)) => key.with(it),
                Some(("uuid", it)) => key.with(uuid(it).ok_or_else(wrong)?),
                Some(("bool", it)) => key.with(it.parse::<bool>().map_err(|_| wrong())?),
                Some(("bytes", it)) => key.with(bytes(it).ok_or_else(wrong)?),
                _ => match (part.parse::<i128>(), uuid(part)) {
                    (Ok(number), _) => key.with(number),
                    (_, Some(uuid)) => key.with(uuid),
                    _ => key.with(part.as_str()),
                },
            })
        })
    }

    /// The name of the cache, without its version.
    pub(crate) fn name(&self) -> &str {
        match self.kind.rsplit_once('@') {
            Some((name, version)) if version.parse::<u32>().is_ok() => name,
            _ => &self.kind,
        }
    }

    /// Keys that may be meant instead, each with the mistake, and the likeliest mistakes first. `kinds` are caches that
    /// are known, as `item` or `item@2`.
    pub(crate) fn others(&self, kinds: &[String]) -> Vec<(&'static str, Self)> {
        let of_kind = |kind: String| Self { kind, parts: self.parts.clone() };
        let name = self.name();
        let names = kinds.iter().cloned().chain([
            name.strip_suffix('s').unwrap_or_default().to_owned(),
            format!("{name}s"),
            name.to_lowercase(),
            name.replace('-', "_"),
            name.replace('_', "-"),
        ]);
        let is_other = |other: &String| !other.is_empty() && *other != name;
        let names: Vec<_> = names.filter(is_other).collect();
        let versions = |name: &str| -> Vec<_> {
            let versions = (1..=VERSIONS).map(|version| format!("{name}@{version}"));
            [name.to_owned()].into_iter().chain(versions).collect()
        };
        let of_names = names.iter().map(|name| (NAME, of_kind(name.clone())));
        let of_versions = versions(name).into_iter().map(|kind| (VERSION, of_kind(kind)));
        let of_types = self.other_parts().map(|parts| (TYPE, Self { parts, ..self.clone() }));
        let of_both = names.iter().filter(|name| !name.contains('@'));
        let of_both = of_both.flat_map(|name| versions(name)).map(|kind| (NAME, of_kind(kind)));
        let others = of_names.chain(of_versions).chain(of_types).chain(of_both);
        others.filter(|(_, other)| other != self).collect()
    }

    /// The parts with other types: each of them alone, and then all of them.
    fn other_parts(&self) -> impl Iterator<Item = Vec<String>> {
        let each = (0..self.parts.len()).map(|place| {
            let others = self.parts.iter().enumerate();
            others
                .map(|(at, part)| if at == place { of_other_type(part) } else { part.clone() })
                .collect()
        });
        each.chain([self.parts.iter().map(|part| of_other_type(part)).collect()])
    }
}

impl fmt::Display for TypedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        self.parts.iter().try_for_each(|part| write!(f, " {part}"))
    }
}

/// A part of the other type that has the same letters: a number or a UUID as text, or a text as one of these.
fn of_other_type(part: &str) -> String {
    let as_text = |it: &str| format!("text:{it}");
    match part.split_once(':') {
        Some(("text", it)) => it.to_owned(),
        Some(("int" | "uuid" | "bool", it)) => as_text(it),
        Some(_) => part.to_owned(),
        None if part.parse::<i128>().is_ok() || uuid(part).is_some() => as_text(part),
        None if part.parse::<bool>().is_ok() => format!("bool:{part}"),
        None => part.to_owned(),
    }
}

/// A UUID with hyphens. Digits alone may be anything.
fn uuid(part: &str) -> Option<Uuid> {
    Uuid::try_parse(part).ok().filter(|_| part.len() == 36)
}

pub(crate) fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, []) = hex.as_bytes().as_chunks() else { return None };
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

/// Up to which version is looked.
pub(crate) const VERSIONS: u32 = 20;

const NAME: &str = "is the name of the cache right?";
const VERSION: &str = "is the version of the cache right?";
const TYPE: &str = "are the types of the parts right?";

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(parts: &[&str]) -> TypedKey {
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        TypedKey::new("item", &parts)
    }

    fn key(parts: &[&str]) -> Key {
        typed(parts).key().expect("a key")
    }

    #[test]
    fn parts_have_the_types_that_they_look_like() {
        let uuid = "5f0c7127-39ad-4a7c-8e0b-0cd4b1a7e0c3";
        let of_uuid = Uuid::parse_str(uuid).expect("a UUID");
        let expected = Key::of("item").with(42).with(-7).with("berlin").with(of_uuid);
        assert_eq!(key(&["42", "-7", "berlin", uuid]), expected);
        assert_eq!(key(&["user:42"]), Key::of("item").with("user:42"));
        assert_eq!(key(&[]), Key::of("item"));
    }

    #[test]
    fn parts_have_the_types_that_they_are_given() {
        assert_eq!(key(&["text:42"]), Key::of("item").with("42"));
        assert_eq!(key(&["text:int:42"]), Key::of("item").with("int:42"));
        assert_eq!(key(&["int:42"]), Key::of("item").with(42));
        assert_eq!(key(&["bool:true"]), Key::of("item").with(true));
        assert_eq!(key(&["bytes:0aff"]), Key::of("item").with([0x0a_u8, 0xff]));
        for wrong in ["int:x", "uuid:x", "bool:x", "bytes:0", "bytes:zz"] {
            assert!(typed(&[wrong]).key().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_guessed_before_versions_and_versions_before_types() {
        let others = typed(&["42", "berlin"]).others(&["price@3".to_owned()]);
        let place = |mistake, other: &str| {
            let is_it = |it: &(&str, TypedKey)| it.0 == mistake && it.1.to_string() == other;
            others.iter().position(is_it).unwrap_or_else(|| panic!("{other}: {others:?}"))
        };
        let places = [
            place(NAME, "price@3 42 berlin"),
            place(NAME, "items 42 berlin"),
            place(VERSION, "item@2 42 berlin"),
            place(TYPE, "item text:42 berlin"),
            place(NAME, "items@2 42 berlin"),
        ];
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn a_key_of_a_version_may_be_one_of_none() {
        let of_version = TypedKey::new("item@2", &["text:42".to_owned()]);
        assert_eq!(of_version.name(), "item");
        let others = of_version.others(&[]);
        for other in ["item text:42", "item@3 text:42", "item@2 42"] {
            assert!(others.iter().any(|(_, it)| it.to_string() == other), "{other}: {others:?}");
        }
    }
}
