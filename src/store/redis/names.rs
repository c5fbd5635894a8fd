//! Names: what the keys of a `RedisStore` are called in Redis.

use crate::key::Digest;

/// `bw:<namespace>:{<digest>}` for the entry, and the same with `:lease`, `:floor` and `:failed`. Scripts make
/// those of floor and failure by themselves.
///
/// The digest alone is in the braces, so that all names of a key fall into one slot of a cluster,
/// whatever text the key holds.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Self {
        Self { prefix: format!("bw:{namespace}:{{") }
    }

    pub(super) fn entry(&self, digest: &Digest) -> Vec<u8> {
        self.name(digest, b"")
    }

    pub(super) fn lease(&self, digest: &Digest) -> Vec<u8> {
        self.name(digest, b":lease")
    }

    pub(super) fn failed(&self, digest: &Digest) -> Vec<u8> {
        self.name(digest, b":failed")
    }

    /// Whether a name of ours is that of an entry.
    pub(super) fn is_of_entry(name: &[u8]) -> bool {
        name.ends_with(b"}")
    }

    /// A name of a key that others have a use for.
    pub(super) fn name(&self, digest: &Digest, suffix: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), &digest.hex(), b"}", suffix].concat()
    }

    /// Whose name this is, if it is one of ours.
    pub(super) fn digest_of(&self, name: &[u8]) -> Option<Digest> {
        let hex =
            name.strip_prefix(self.prefix.as_bytes())?.first_chunk::<{ Digest::BYTES * 2 }>()?;
        let mut digest = [0; Digest::BYTES];
        for (byte, [high, low]) in digest.iter_mut().zip(hex.as_chunks().0) {
            *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
        }
        Some(Digest(digest))
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn every_name_of_a_key_leads_back_to_it() {
        let names = Names::new("shop");
        let digest = Key::of("item").with("}").with("{x}").digest();
        for name in [names.entry(&digest), names.lease(&digest), names.failed(&digest)] {
            assert_eq!(names.digest_of(&name), Some(digest));
            assert_eq!(Names::is_of_entry(&name), name == names.entry(&digest));
        }
    }

    #[test]
    fn names_of_others_lead_nowhere() {
        let names = Names::new("shop");
        let foreign = Names::new("shop2").entry(&Key::of("item").digest());
        for name in [&foreign[..], b"bw:shop:{", b"bw:shop:{zz", b"", b"\xff\xfe"] {
            assert_eq!(names.digest_of(name), None);
        }
    }

    #[test]
    fn the_hash_tag_is_the_digest_whatever_the_key_holds() {
        let names = Names::new("shop");
        for text in ["", "}", "{x}", "\0\r\n", "a}b{c"] {
            let digest = Key::of(text).with(text).digest();
            for name in [names.entry(&digest), names.lease(&digest), names.failed(&digest)] {
                let name = String::from_utf8(name).unwrap();
                let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                assert_eq!(tag.map(|(tag, _)| tag), Some(digest.to_string().as_str()));
            }
        }
    }
}
