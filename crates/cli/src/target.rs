//! What a command is about: keys and tags as people type them, and digests as logs show them.

use std::collections::BTreeSet;

use bellwether::store::Digest;
use bellwether_redis::by_digest::WithdrawnDigest;

use crate::CliError;
use crate::known_keys::KnownKeysArgs;
use crate::nodes::scan;
use crate::output::note;
use crate::server::ServerArgs;
use crate::typed_key::{TypedKey, bytes};

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
    #[command(flatten)]
    known: KnownKeysArgs,
}

/// What a command is about.
#[derive(Debug)]
pub(crate) struct CommandTarget {
    pub(crate) digest: WithdrawnDigest,
    /// The key, if it is known by more than its digest.
    pub(crate) typed: Option<TypedKey>,
}

impl TargetArgs {
    /// The key or the tag. Only a few digits of a digest need the servers.
    pub(crate) async fn find(&self, server: &ServerArgs) -> Result<CommandTarget, CliError> {
        if let Some([kind, parts @ ..]) = self.tag.as_deref() {
            let digest = WithdrawnDigest::Tag(TypedKey::new(kind, parts).key()?.digest());
            return Ok(CommandTarget { digest, typed: None });
        }
        let kind = self.kind.as_deref().unwrap_or_default();
        let Some(hex) = self.digest.as_deref().or_else(|| logged(kind, &self.parts)) else {
            let typed = TypedKey::new(kind, &self.parts);
            let digest = WithdrawnDigest::Key(typed.key()?.digest());
            return Ok(CommandTarget { digest, typed: Some(typed) });
        };
        let hex = hex.rsplit('#').next().unwrap_or_default().to_lowercase();
        let known = self.known.read()?;
        if !is_hex(&hex) {
            return Err(format!("`{hex}` is no digest: 8 to 40 hexadecimal digits").into());
        }
        let digest = match digest(&hex).or_else(|| known.starting_with(&hex)) {
            Some(digest) => digest,
            None => search(server, &hex).await?,
        };
        Ok(CommandTarget { digest: WithdrawnDigest::Key(digest), typed: known.get(&digest) })
    }
}

/// The digits of a key as a log shows it, such as `item#0f3a99c1`.
fn logged<'a>(kind: &'a str, parts: &[String]) -> Option<&'a str> {
    let (_, hex) = kind.rsplit_once('#')?;
    (parts.is_empty() && is_hex(hex)).then_some(hex)
}

fn digest(hex: &str) -> Option<Digest> {
    Some(<[u8; Digest::BYTES]>::try_from(bytes(hex)?).ok()?.into())
}

/// Whether this is a digest, or enough of one that there is hardly another.
fn is_hex(hex: &str) -> bool {
    (8..=2 * Digest::BYTES).contains(&hex.len()) && hex.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Searches the names of all nodes for the one digest that begins with these digits.
async fn search(server: &ServerArgs, hex: &str) -> Result<Digest, CliError> {
    let client = server.client(Default::default()).await?;
    let prefix = format!("bw:{}:{{", client.options().namespace());
    let pattern = format!("{prefix}{hex}*");
    note(&format!("searching at most {MOST_NAMES} names for {pattern}"));
    let mut found = BTreeSet::new();
    let has_read_all = scan(&client, &pattern, MOST_NAMES, |name| {
        let name = name.strip_prefix(&prefix).and_then(|name| name.split('}').next());
        found.extend(name.and_then(digest));
        true
    });
    if !has_read_all.await? {
        return Err(format!("{hex} is not among {MOST_NAMES} names; give all 40 digits").into());
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

/// How many names are read at most.
const MOST_NAMES: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

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
