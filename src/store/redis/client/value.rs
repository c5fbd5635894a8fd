//! What a server answers.

use redis::Value;

/// What a Redis server answers, as far as the protocols of this crate have a use for it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RedisValue {
    /// Nothing is there; or a script gave `false`.
    Nil,
    /// A whole number; or a script gave a number, without its fraction.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several values.
    Array(Vec<Self>),
    /// A reply that no script and no command of these protocols gives.
    Other,
}

impl RedisValue {
    /// The number, if it is one from zero up.
    pub fn whole(&self) -> Option<u64> {
        match self {
            Self::Int(whole) => u64::try_from(*whole).ok(),
            _ => None,
        }
    }
}

impl From<Value> for RedisValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Nil | Value::Boolean(false) => Self::Nil,
            Value::Int(number) => Self::Int(number),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::Array(values) => Self::Array(values.into_iter().map(Self::from).collect()),
            _ => Self::Other,
        }
    }
}
