//! Replies of a server.

use redis::Value;

/// A reply of a Redis server, as far as the protocols of this crate use it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RedisValue {
    /// There is no value, or a script returned `false`.
    Nil,
    /// A whole number. A number that a script returns loses its fraction.
    Int(i64),
    /// Bytes, or a text.
    Bytes(Vec<u8>),
    /// Several values. Those of a map follow their fields.
    Array(Vec<Self>),
    /// Any other reply.
    Other,
}

impl RedisValue {
    /// The number, if this is one and is not negative.
    pub fn whole(&self) -> Option<u64> {
        match self {
            Self::Int(whole) => u64::try_from(*whole).ok(),
            _ => None,
        }
    }

    /// Whether it is zero, or an array with a zero.
    pub(super) fn has_zero(&self) -> bool {
        match self {
            Self::Array(values) => values.contains(&Self::Int(0)),
            value => *value == Self::Int(0),
        }
    }
}

impl From<Value> for RedisValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Nil | Value::Boolean(false) => Self::Nil,
            Value::Int(number) => Self::Int(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::VerbatimString { text, .. } => Self::Bytes(text.into_bytes()),
            Value::Array(values) => Self::Array(values.into_iter().map(Self::from).collect()),
            Value::Map(pairs) => {
                let values = pairs.into_iter().flat_map(|(field, value)| [field, value]);
                Self::Array(values.map(Self::from).collect())
            }
            _ => Self::Other,
        }
    }
}
