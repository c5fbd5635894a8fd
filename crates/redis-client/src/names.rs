//! Names: how keys of a namespace are named in Redis.

use bellwether::store::Digest;

use super::slots::{InSlot, tag_of};

/// `bw:<namespace>:{<digest>}` with a suffix.
///
/// Only the digest is in the braces. So all names of a key are in one slot of a cluster, whatever
/// text the key holds.
#[derive(Debug)]
pub struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Self {
        Self { prefix: format!("bw:{namespace}:") }
    }

    /// What all names begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name `bw:<namespace>:{<digest>}<suffix>` of a key. A change of it is reported to the
    /// [watches](super::RedisClient::watch) of the key.
    pub fn name(&self, digest: &Digest, suffix: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), b"{", &digest.hex(), b"}", suffix.as_bytes()].concat()
    }

    /// The name `bw:<namespace>:<what>:{<digest>}` of a key. Its changes are reported to no watch.
    pub fn unwatched_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        [self.prefix.as_bytes(), what.as_bytes(), b":{", &digest.hex(), b"}"].concat()
    }

    /// The name of a tag. Its changes are [reported](super::ServerEvent::TagChanged).
    ///
    /// It begins with a letter above that of keys: a server whose tracking table is full drops about
    /// the smallest names of it first.
    pub fn tag_name(&self, tag: &Digest) -> Vec<u8> {
        self.unwatched_name(TAG, tag)
    }

    /// The name `bw:<namespace>:<what>:{<tag>}` that all keys of one hash slot share.
    pub fn shared_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        self.tagged_name(what, tag_of(digest.slot()))
    }

    /// A name with a hash tag, of no key.
    pub(super) fn tagged_name(&self, what: &str, tag: u32) -> Vec<u8> {
        format!("{}{what}:{{{tag}}}", self.prefix).into_bytes()
    }

    /// The key that a name belongs to, if it is one of ours, and what follows the digest.
    pub(super) fn read<'a>(&self, name: &'a [u8]) -> Option<(Digest, &'a [u8])> {
        Self::read_digest(name.strip_prefix(self.prefix.as_bytes())?)
    }

    /// The tag that a name is [of](Self::tag_name), if it is one of a tag.
    pub(super) fn tag_of(&self, name: &[u8]) -> Option<Digest> {
        let name = name.strip_prefix(self.prefix.as_bytes())?.strip_prefix(TAG.as_bytes())?;
        Some(Self::read_digest(name.strip_prefix(b":")?)?.0)
    }

    /// The channel of a client, by the mark that it leaves at leases.
    pub(super) fn waiter_channel(&self, mark: &str) -> String {
        format!("{}waiter:{mark}", self.prefix)
    }

    fn read_digest(braced: &[u8]) -> Option<(Digest, &[u8])> {
        let (hex, rest) =
            braced.strip_prefix(b"{")?.split_first_chunk::<{ Digest::BYTES * 2 }>()?;
        let mut digest = [0; Digest::BYTES];
        for (byte, [high, low]) in digest.iter_mut().zip(hex.as_chunks().0) {
            let [high, low] = [*high, *low].map(|digit| char::from(digit).to_digit(16));
            *byte = (high? << 4 | low?) as u8;
        }
        Some((digest.into(), rest.strip_prefix(b"}")?))
    }
}

/// What the names of tags have before their digests.
const TAG: &str = "~tag";

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

    /// The key that a name belongs to.
    fn digest_of(names: &Names, name: &[u8]) -> Option<Digest> {
        names.read(name).map(|(digest, _)| digest)
    }

    const SUFFIXES: [&str; 4] = ["", ":lease", ":failed", ":lock"];

    #[test]
    fn every_name_of_a_key_leads_back_to_it() {
        let names = Names::new("shop");
        let digest = Key::of("item").with("}").with("{x}").digest();
        for suffix in SUFFIXES {
            assert_eq!(digest_of(&names, &names.name(&digest, suffix)), Some(digest));
        }
    }

    #[test]
    fn other_names_lead_nowhere() {
        let names = Names::new("shop");
        let digest = Key::of("item").digest();
        let foreign = Names::new("shop2").name(&digest, "");
        let shared = names.shared_name("fence", &digest);
        let unwatched = names.unwatched_name("queue", &digest);
        let others: [&[u8]; 4] = [b"bw:shop:{", b"bw:shop:{zz", b"", b"\xff\xfe"];
        for name in [&foreign[..], &shared, &unwatched].into_iter().chain(others) {
            assert_eq!(digest_of(&names, name), None);
        }
    }

    #[test]
    fn the_name_of_a_tag_leads_to_the_tag_and_to_no_key() {
        let names = Names::new("shop");
        let digest = Key::of("item").digest();
        let name = names.tag_name(&digest);
        assert!(name.starts_with(b"bw:shop:~tag:{"));
        assert_eq!((names.tag_of(&name), digest_of(&names, &name)), (Some(digest), None));
        for other in [names.name(&digest, ""), Names::new("shop2").tag_name(&digest)] {
            assert_eq!(names.tag_of(&other), None);
        }
    }

    /// A full tracking table loses about the smallest of its names.
    #[test]
    fn the_names_of_tags_are_above_those_of_keys() {
        let names = Names::new("shop");
        let digest = |sku: u64| Key::of("item").with(sku).digest();
        let of_keys =
            (0..100).flat_map(|sku| SUFFIXES.map(|suffix| names.name(&digest(sku), suffix)));
        let least = (0..100).map(|sku| names.tag_name(&digest(sku))).min();
        assert!(of_keys.max() < least);
    }

    #[test]
    fn the_hash_tag_is_the_digest_whatever_the_key_holds() {
        let names = Names::new("shop");
        for text in ["", "}", "{x}", "\0\r\n", "a}b{c"] {
            let digest = Key::of(text).with(text).digest();
            for suffix in SUFFIXES {
                let name = String::from_utf8(names.name(&digest, suffix)).unwrap();
                let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                assert_eq!(tag.map(|(tag, _)| tag), Some(digest.to_string().as_str()));
            }
        }
    }

    #[test]
    fn all_names_of_a_key_are_in_one_slot() {
        let names = Names::new("shop");
        for sku in 0..100 {
            let digest = Key::of("item").with(sku).digest();
            let shared = names.shared_name("fence", &digest);
            let unwatched = names.unwatched_name("queue", &digest);
            let of_key = SUFFIXES.map(|suffix| names.name(&digest, suffix));
            for name in of_key.iter().chain([&shared, &unwatched]) {
                assert_eq!(name.slot(), digest.slot());
            }
        }
    }
}
