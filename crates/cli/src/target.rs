//! What a command is about: keys and tags as people type them, and digests as logs show them.

use std::collections::BTreeSet;

use bellwether::Key;
use bellwether::store::Digest;
use bellwether_redis::by_digest::WithdrawnDigest;
use uuid::Uuid;

use crate::CliError;
use crate::nodes::{list, nodes, text};
use crate::server::ServerArgs;

/// A key or a tag.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// The name of the cache; or what a log shows of a key, such as item#0f3a99c1.
    #[arg(required_unless_present_any = ["digest", "tag"], conflicts_with_all = ["digest", "tag"])]
    kind: Option<String>,
    /// The parts of the key, as in `item 42`.
    ///
    /// A whole number is a number, a UUID is a UUID, and all else is text. In a program, a number and a text of
    /// the same digits are two keys. Say which one it is, if it is not what it looks like:
    ///
    ///   int:42   text:42   uuid:5f0c...   bool:true   bytes:0aff
    #[arg(allow_negative_numbers = true, verbatim_doc_comment)]
    parts: Vec<String>,
    /// The digest of the key, or its first 8 digits or more.
    ///
    /// Less than all 40 digits are searched for by SCAN, which reads all names of the database, up to 10
    /// million.
    #[arg(long, value_name = "HEX", conflicts_with = "tag")]
    digest: Option<String>,
    /// A tag, by its kind and its parts: --tag shelf berlin 7. Not for `inspect`.
    #[arg(long, num_args = 1.., value_name = "PART", allow_negative_numbers = true)]
    tag: Option<Vec<String>>,
}

impl TargetArgs {
    /// The key or the tag. Only a few digits of a digest need the servers.
    pub(crate) async fn find(&self, server: &ServerArgs) -> Result<WithdrawnDigest, CliError> {
        if let Some([kind, parts @ ..]) = self.tag.as_deref() {
            return Ok(WithdrawnDigest::Tag(key(kind, parts)?.digest()));
        }
        let kind = self.kind.as_deref().unwrap_or_default();
        Ok(WithdrawnDigest::Key(
            match self.digest.as_deref().or_else(|| logged(kind, &self.parts)) {
                Some(hex) => find_digest(server, hex).await?,
                None => key(kind, &self.parts)?.digest(),
            },
        ))
    }
}

/// The digest with these digits, or with these first ones.
async fn find_digest(server: &ServerArgs, hex: &str) -> Result<Digest, CliError> {
    let hex = hex.rsplit('#').next().unwrap_or_default().to_lowercase();
    match digest(&hex) {
        Some(digest) => Ok(digest),
        None if is_hex(&hex) => scan(server, &hex).await,
        None => Err(format!("`{hex}` is no digest: 8 to 40 hexadecimal digits").into()),
    }
}

/// The digits of a key as a log shows it, such as `item#0f3a99c1`.
fn logged<'a>(kind: &'a str, parts: &[String]) -> Option<&'a str> {
    let (_, hex) = kind.rsplit_once('#')?;
    (parts.is_empty() && is_hex(hex)).then_some(hex)
}

/// The key of a kind and parts, typed or not: see `--help`.
fn key(kind: &str, parts: &[String]) -> Result<Key, CliError> {
    parts.iter().try_fold(Key::of(kind), |key, part| {
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

/// A UUID with hyphens. Digits alone may be anything.
fn uuid(part: &str) -> Option<Uuid> {
    Uuid::try_parse(part).ok().filter(|_| part.len() == 36)
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, []) = hex.as_bytes().as_chunks() else { return None };
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

fn digest(hex: &str) -> Option<Digest> {
    Some(<[u8; Digest::BYTES]>::try_from(bytes(hex)?).ok()?.into())
}

/// Whether this is a digest, or enough of one that there is hardly another.
fn is_hex(hex: &str) -> bool {
    (8..=2 * Digest::BYTES).contains(&hex.len()) && hex.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Searches the names of all nodes for the one digest that begins with these digits.
async fn scan(server: &ServerArgs, hex: &str) -> Result<Digest, CliError> {
    let client = server.client(Default::default()).await?;
    let prefix = format!("bw:{}:{{", client.options().namespace());
    let pattern = format!("{prefix}{hex}*");
    eprintln!("bellwether: searching at most {MOST_NAMES} names for {pattern}");
    let (mut found, mut read) = (BTreeSet::new(), 0);
    for node in nodes(&client) {
        let mut cursor = "0".to_owned();
        loop {
            let args = [&cursor, "MATCH", &pattern, "COUNT", AT_ONCE];
            let reply = node.run("SCAN", &args).await?;
            let [next, names] = list(&reply) else { return Err("SCAN: no such reply".into()) };
            let of_name = |name| digest(text(name)?.strip_prefix(&prefix)?.split('}').next()?);
            found.extend(list(names).iter().filter_map(of_name));
            cursor = text(next).unwrap_or_default().to_owned();
            read += 1_000;
            if cursor == "0" {
                break;
            }
            if read >= MOST_NAMES {
                return Err(format!("{hex} is not among {read} names; give all 40 digits").into());
            }
        }
    }
    match (found.pop_first(), found.len()) {
        (Some(digest), 0) => Ok(digest),
        (one, _) => Err(format!(
            "{} keys are stored under {pattern}",
            found.len() + usize::from(one.is_some())
        )
        .into()),
    }
}

/// How many names one command reads, in about a millisecond.
const AT_ONCE: &str = "1000";

/// How many names are read at most.
const MOST_NAMES: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(parts: &[&str]) -> Key {
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        key("item", &parts).expect("a key")
    }

    #[test]
    fn parts_have_the_types_that_they_look_like() {
        let uuid = "5f0c7127-39ad-4a7c-8e0b-0cd4b1a7e0c3";
        let of_uuid = Uuid::parse_str(uuid).expect("a UUID");
        let expected = Key::of("item").with(42).with(-7).with("berlin").with(of_uuid);
        assert_eq!(typed(&["42", "-7", "berlin", uuid]), expected);
        assert_eq!(typed(&["user:42"]), Key::of("item").with("user:42"));
        assert_eq!(typed(&[]), Key::of("item"));
    }

    #[test]
    fn parts_have_the_types_that_they_are_given() {
        assert_eq!(typed(&["text:42"]), Key::of("item").with("42"));
        assert_eq!(typed(&["text:int:42"]), Key::of("item").with("int:42"));
        assert_eq!(typed(&["int:42"]), Key::of("item").with(42));
        assert_eq!(typed(&["bool:true"]), Key::of("item").with(true));
        assert_eq!(typed(&["bytes:0aff"]), Key::of("item").with([0x0a_u8, 0xff]));
        for wrong in ["int:x", "uuid:x", "bool:x", "bytes:0", "bytes:zz"] {
            assert!(key("item", &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_log_shows_is_no_kind() {
        let full = Key::of("item").with(42).digest();
        assert_eq!(digest(&full.to_string()), Some(full));
        assert_eq!(logged("item#0F3A99C1", &[]), Some("0F3A99C1"));
        for other in ["item", "item#1", "item#0f3a99cx"] {
            assert_eq!(logged(other, &[]), None);
        }
        assert_eq!(logged("item#0f3a99c1", &["42".to_owned()]), None);
    }
}
