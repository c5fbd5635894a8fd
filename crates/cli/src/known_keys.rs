//! Keys that the operator knows: by them, a digest leads to its key.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::slice;

use bellwether::store::Digest;

use crate::CliError;
use crate::typed_key::TypedKey;

/// Where these keys are.
#[derive(Debug, clap::Args)]
pub(crate) struct KnownKeysArgs {
    /// A file of keys, or `-` for the standard input: the names of what is known by its digest only.
    ///
    /// A digest does not give its key. So give all keys that it may be, up to 10 million, each on a line as for
    /// `inspect`. A part like 1..5000 stands for all these numbers:
    ///
    ///   echo item 1..5000 | bellwether inspect item#0f3a99c1 --keys -
    ///   psql -Atc "SELECT 'user ' || id FROM users" > keys; bellwether watch --keys keys
    #[arg(long = "keys", value_name = "FILE", verbatim_doc_comment)]
    file: Option<PathBuf>,
}

/// Keys as they are typed, by their digests.
#[derive(Debug, Default)]
pub(crate) struct KnownKeys(HashMap<Digest, Box<str>>);

impl KnownKeysArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the keys. There are none without a file.
    pub(crate) fn read(&self) -> Result<KnownKeys, CliError> {
        let Some(file) = &self.file else { return Ok(KnownKeys::default()) };
        let text = match file == Path::new("-") {
            true => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).map(|_| text)
            }
            false => fs::read_to_string(file),
        };
        let text = text.map_err(|error| format!("--keys {}: {error}", file.display()))?;
        KnownKeys::of(&text)
    }
}

impl KnownKeys {
    fn of(text: &str) -> Result<Self, CliError> {
        let mut known = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(kind) = words.next() else { continue };
            let mut keys = vec![Vec::new()];
            for part in words {
                let values = values(part)?;
                if keys.len().saturating_mul(values.len()) + known.0.len() > MOST_KEYS {
                    return Err(format!("--keys: more than {MOST_KEYS} keys").into());
                }
                let longer = |key: Vec<String>| {
                    values.iter().map(move |value| [&key[..], slice::from_ref(value)].concat())
                };
                keys = keys.into_iter().flat_map(longer).collect();
            }
            for parts in keys {
                let typed = TypedKey::new(kind, &parts);
                known.0.insert(typed.key()?.digest(), typed.to_string().into());
            }
        }
        Ok(known)
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<TypedKey> {
        let mut words = self.0.get(digest)?.split(' ').map(str::to_owned);
        let kind = words.next()?;
        Some(TypedKey::new(&kind, &words.collect::<Vec<_>>()))
    }

    /// The only digest that begins with these digits.
    pub(crate) fn starting_with(&self, hex: &str) -> Option<Digest> {
        let mut found = self.0.keys().filter(|digest| digest.to_string().starts_with(hex));
        let first = found.next().copied();
        first.filter(|_| found.next().is_none())
    }
}

/// What a part of a line stands for: itself, or the numbers of a range.
fn values(part: &str) -> Result<Vec<String>, CliError> {
    let range = part.split_once("..").map(|(first, last)| (first.parse(), last.parse()));
    let Some((Ok(first), Ok(last))) = range else { return Ok(vec![part.to_owned()]) };
    if i64::saturating_sub(last, first) >= MOST_KEYS as i64 {
        return Err(format!("--keys {part}: more than {MOST_KEYS} keys").into());
    }
    Ok((first..=last).map(|number: i64| number.to_string()).collect())
}

/// They take about a gigabyte.
const MOST_KEYS: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

    #[test]
    fn a_digest_leads_to_the_key_of_a_line_and_of_a_range() {
        let known = KnownKeys::of("price berlin text:42\n\nitem@2 1..300\n").expect("keys");
        let price = Key::of("price").with("berlin").with("42").digest();
        let item = Key::of("item@2").with(300).digest();
        let shown = [price, item].map(|it| known.get(&it).expect("a key").to_string());
        assert_eq!(shown, ["price berlin text:42", "item@2 300"]);
        assert_eq!(known.get(&Key::of("item@2").with(301).digest()), None);
        assert_eq!(known.starting_with(&item.to_string()[..12]), Some(item));
        assert_eq!(known.starting_with(""), None);
    }

    #[test]
    fn too_many_keys_are_refused() {
        for text in ["item 1..10000001", "item 1..5000 1..5000", "item int:x"] {
            assert!(KnownKeys::of(text).is_err(), "{text}");
        }
    }
}
