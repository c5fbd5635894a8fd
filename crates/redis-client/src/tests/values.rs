//! Any values that a server sends, and valid ones that were changed.

use redis::Value;

use bellwether_testkit::fuzz::Choices;

/// A text of a server.
pub(crate) fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn leaf(choices: &mut Choices) -> Value {
    match choices.below(9) {
        0 => Value::Nil,
        1 => Value::Int(choices.number() as i64),
        2 => Value::Int(choices.below(70_000) as i64 - 2),
        3 => Value::SimpleString(choices.text(4)),
        4 => Value::Boolean(choices.one_in(2)),
        5 => Value::Double(f64::from_bits(choices.number())),
        6 => text(&choices.below(70_000).to_string()),
        7 => Value::Array(Vec::new()),
        _ => Value::BulkString(choices.bytes(6)),
    }
}

/// A value with one to three of its parts changed, at any depth.
pub(crate) fn changed(choices: &mut Choices, mut value: Value) -> Value {
    for _ in 0..=choices.below(3) {
        change(choices, &mut value);
    }
    value
}

fn change(choices: &mut Choices, value: &mut Value) {
    match value {
        Value::Array(values) if !values.is_empty() && !choices.one_in(8) => {
            let (at, other) = (choices.below(values.len()), choices.below(values.len()));
            match choices.below(8) {
                0 => drop(values.remove(at)),
                1 => values.truncate(at),
                2 => values.swap(at, other),
                3 => values.insert(other, values[at].clone()),
                4 => values.insert(at, leaf(choices)),
                _ => change(choices, &mut values[at]),
            }
        }
        Value::BulkString(bytes) if choices.one_in(2) => *bytes = choices.mutated(bytes, b":?1"),
        value => *value = leaf(choices),
    }
}
