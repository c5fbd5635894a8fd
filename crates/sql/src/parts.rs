//! The parts of keys as JSON, as the table has them, and back.
//!
//! Text, numbers of 64 bits, `bool` and `None` are JSON's own. All else is an object with one field: `uuid`,
//! `bytes`, `number`, `some`, `list` (how many items follow), or `text` for text that PostgreSQL cannot hold.

use bellwether::store::KeyPart;
use bellwether::{CacheKey, Key, Tag};
use serde_json::{Value, json};
use uuid::Uuid;

/// Parts of a key as an array.
pub(crate) fn json_of<'a>(mut parts: impl Iterator<Item = KeyPart<'a>>) -> Value {
    let mut values = Vec::new();
    while let Some(part) = parts.next() {
        values.push(value_of(part, &mut parts));
    }
    values.into()
}

/// One part, and what is in it if it is a `Some`.
fn value_of<'a>(part: KeyPart<'a>, rest: &mut impl Iterator<Item = KeyPart<'a>>) -> Value {
    match part {
        KeyPart::Text(text) if text.contains('\0') => json!({ "text": hex(text.as_bytes()) }),
        KeyPart::Text(text) => text.into(),
        KeyPart::Bytes(bytes) => json!({ "bytes": hex(bytes) }),
        KeyPart::Number(number) => match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            _ => json!({ "number": number.to_string() }),
        },
        KeyPart::LargeNumber(number) => json!({ "number": number.to_string() }),
        KeyPart::Truth(truth) => truth.into(),
        KeyPart::Uuid(uuid) => json!({ "uuid": uuid.to_string() }),
        KeyPart::List(length) => json!({ "list": length }),
        KeyPart::Some => {
            json!({ "some": rest.next().map_or(json!([]), |part| value_of(part, rest)) })
        }
        KeyPart::None => Value::Null,
    }
}

/// The key of a kind with these parts.
///
/// # Errors
/// What is wrong with them. It tells no value.
pub(crate) fn key_of(kind: &str, parts: &Value) -> Result<Key, String> {
    let parts = parts_of(parts)?;
    Ok(parts.into_iter().fold(Key::of(kind), Key::with))
}

/// As [`key_of`], a tag.
pub(crate) fn tag_of(kind: &str, parts: &Value) -> Result<Tag, String> {
    let parts = parts_of(parts)?;
    Ok(parts.into_iter().fold(Tag::of(kind), Tag::with))
}

fn parts_of(parts: &Value) -> Result<Vec<OwnedPart>, String> {
    let parts = parts.as_array().ok_or("its parts are no array")?;
    let each = parts
        .iter()
        .enumerate()
        .map(|(at, part)| part_of(part).ok_or_else(|| format!("part {} is none of a key", at + 1)));
    each.collect()
}

/// A part, with what is in it.
enum OwnedPart {
    Text(String),
    Bytes(Vec<u8>),
    Number(i128),
    LargeNumber(u128),
    List(u32),
    Truth(bool),
    Uuid(Uuid),
    Some(Option<Box<Self>>),
    None,
}

impl CacheKey for OwnedPart {
    fn add_to(&self, key: &mut Key) {
        match self {
            Self::Text(text) => text.add_to(key),
            Self::Bytes(bytes) => bytes.add_to(key),
            Self::Number(number) => number.add_to(key),
            Self::LargeNumber(number) => number.add_to(key),
            Self::List(length) => KeyPart::List(*length).add_to(key),
            Self::Truth(truth) => truth.add_to(key),
            Self::Uuid(uuid) => uuid.add_to(key),
            Self::Some(inner) => {
                KeyPart::Some.add_to(key);
                if let Some(part) = inner {
                    part.add_to(key);
                }
            }
            Self::None => KeyPart::None.add_to(key),
        }
    }
}

fn part_of(part: &Value) -> Option<OwnedPart> {
    Some(match part {
        Value::Null => OwnedPart::None,
        Value::Bool(truth) => OwnedPart::Truth(*truth),
        Value::String(text) => OwnedPart::Text(text.clone()),
        Value::Number(number) => OwnedPart::Number(match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (_, number) => number?.into(),
        }),
        Value::Object(fields) if fields.len() == 1 => {
            let (field, value) = fields.iter().next()?;
            match (field.as_str(), value.as_str()) {
                ("some", _) if *value == json!([]) => OwnedPart::Some(None),
                ("some", _) => OwnedPart::Some(Some(Box::new(part_of(value)?))),
                ("number", Some(digits)) => match digits.parse() {
                    Ok(number) => OwnedPart::Number(number),
                    Err(_) => OwnedPart::LargeNumber(digits.parse().ok()?),
                },
                ("list", _) => OwnedPart::List(value.as_u64()?.try_into().ok()?),
                ("uuid", Some(uuid)) => OwnedPart::Uuid(Uuid::try_parse(uuid).ok()?),
                ("bytes", Some(hex)) => OwnedPart::Bytes(bytes_of(hex)?),
                ("text", Some(hex)) => OwnedPart::Text(String::from_utf8(bytes_of(hex)?).ok()?),
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, []) = hex.as_bytes().as_chunks() else { return None };
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key that is read from the JSON of a key's parts.
    fn again(key: &Key) -> Key {
        let json = json_of(key.parts()).to_string();
        key_of(key.kind(), &serde_json::from_str(&json).expect("JSON")).expect("parts")
    }

    #[test]
    fn a_key_that_went_through_json_is_the_same_key() {
        let item = || Key::of("item");
        let keys = [
            item(),
            item().with(42).with(-7).with(u64::MAX).with(i128::MAX).with(i128::MIN).with(i64::MIN),
            item()
                .with(i128::from(u64::MAX) + 1)
                .with("")
                .with("42")
                .with("lämp \u{1F4A1}")
                .with("a\0b"),
            item().with(Uuid::nil()).with(Uuid::nil().to_string()).with(true).with(false),
            item().with([0_u8, 255]).with(Vec::<u8>::new()).with("null").with("{\"uuid\": 1}"),
            item().with(None::<u64>).with(Some(42)).with(Some(Some("x"))).with(Some(None::<u8>)),
            item().with(u128::MAX).with(vec![1, 2]).with(vec![(1, "a")]).with(Vec::<i64>::new()),
            item().with((Some(()), 7)).with(Some((1, "b"))).with(Some(())),
        ];
        for key in keys {
            assert_eq!(again(&key), key, "{}", json_of(key.parts()));
        }
    }

    #[test]
    fn what_is_no_part_is_refused_with_its_place() {
        for wrong in ["[1, 1.5]", "[1, [2]]", r#"[1, {"uuid": "x"}]"#, r#"[1, {"bytes": "0"}]"#] {
            let error = key_of("item", &serde_json::from_str(wrong).expect("JSON"));
            assert_eq!(error.unwrap_err(), "part 2 is none of a key", "{wrong}");
        }
        assert!(key_of("item", &json!({})).is_err() && key_of("item", &json!([{}])).is_err());
    }
}
