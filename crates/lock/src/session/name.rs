//! The name of a key in a database.

use std::fmt;

use bellwether::Key;
use bellwether::store::Digest;

/// The name of a key of a namespace: `bw:` and 40 hexadecimal digits in lower case.
///
/// It is short enough and has no capital letters: names in MySQL have at most 64 characters, and
/// ignore case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name(Digest);

impl Name {
    pub(crate) fn of(key: &Key, namespace: &str) -> Self {
        let digest = key.digest();
        Self(Key::of("lock").with(namespace).with(digest.as_bytes()).digest())
    }

    /// The first 64 bits of the digest, as a number.
    #[cfg(any(feature = "postgres", test))]
    pub(crate) fn number(&self) -> i64 {
        let bytes = self.0.as_bytes();
        bytes[..8].iter().fold(0, |number, byte| number << 8 | i64::from(*byte))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bw:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_length_and_no_capitals_whatever_the_key() {
        let long = "x".repeat(1000);
        for part in ["", long.as_str(), r"\\'\;--", "ABC", "ä\0"] {
            let name = Name::of(&Key::of("lock").with(part), "shop").to_string();
            assert_eq!(name.len(), 43);
            assert_eq!(name, name.to_lowercase());
        }
    }

    #[test]
    fn keys_and_namespaces_have_names_of_their_own() {
        let name = |kind, namespace| Name::of(&Key::of(kind), namespace);
        let names = [name("a", "shop"), name("A", "shop"), name("a", "Shop"), name("b", "shop")];
        for (at, one) in names.iter().enumerate() {
            for other in &names[..at] {
                assert_ne!(one.to_string(), other.to_string());
                assert_ne!(one.number(), other.number());
            }
        }
    }
}
