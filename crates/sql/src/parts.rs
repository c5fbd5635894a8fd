//! The parts of keys as JSON, as the table has them, and back.
//!
//! Text, numbers of 64 bits, `bool` and `None` are JSON's own. All else is an object with one field: `uuid`,
//! `bytes`, `number`, `some`, `list` (how many items follow), or `text` for text that PostgreSQL cannot hold.

use bellwether::store::KeyPart;
use bellwether::{CacheKey, Key, Tag};
use serde_json::{Value, json};
use uuid::Uuid;

/// The parts of a key as the table has them, for the crates of this project.
#[doc(hidden)]
pub fn json_parts(key: &Key) -> String {
    json_of(key.parts()).to_string()
}

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
    let mut key = Key::of(kind);
    for (at, part) in parts.as_array().ok_or("its parts are no array")?.iter().enumerate() {
        add(part, &mut key).ok_or_else(|| format!("part {} is none of a key", at + 1))?;
    }
    Ok(key)
}

/// As [`key_of`], a tag.
pub(crate) fn tag_of(kind: &str, parts: &Value) -> Result<Tag, String> {
    Ok(key_of(kind, parts)?.parts().fold(Tag::of(kind), Tag::with))
}

/// Adds a part to a key, with what is in it. None if it is no part.
fn add(part: &Value, key: &mut Key) -> Option<()> {
    match part {
        Value::Null => KeyPart::None.add_to(key),
        Value::Bool(truth) => truth.add_to(key),
        Value::String(text) => text.add_to(key),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.add_to(key),
            (_, number) => number?.add_to(key),
        },
        Value::Object(fields) if fields.len() == 1 => {
            let (field, value) = fields.iter().next()?;
            match (field.as_str(), value.as_str()) {
                ("some", _) => {
                    KeyPart::Some.add_to(key);
                    if *value != json!([]) {
                        add(value, key)?;
                    }
                }
                ("number", Some(digits)) => match digits.parse::<i128>() {
                    Ok(number) => number.add_to(key),
                    Err(_) => digits.parse::<u128>().ok()?.add_to(key),
                },
                ("list", _) => KeyPart::List(value.as_u64()?.try_into().ok()?).add_to(key),
                ("uuid", Some(uuid)) => Uuid::try_parse(uuid).ok()?.add_to(key),
                ("bytes", Some(hex)) => bytes_of(hex)?.add_to(key),
                ("text", Some(hex)) => String::from_utf8(bytes_of(hex)?).ok()?.add_to(key),
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
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
