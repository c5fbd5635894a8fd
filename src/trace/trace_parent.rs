//! `TraceParent`: the trace and the span of a load, as W3C Trace Context writes them.

use std::fmt;
use std::sync::Arc;

/// The trace and the span of a load, in the form of the field `traceparent` (W3C Trace Context,
/// section 3.2): 55 characters, such as `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent(Arc<str>);

impl TraceParent {
    /// The length of the text.
    pub const LENGTH: usize = 55;

    /// Reads the text. `None` unless it is of version `00`, in lower case, and neither of its ids is
    /// zero.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.split('-').collect();
        let [version, trace, span, flags] = fields[..] else { return None };
        let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let is_field = |field: &str, length| field.len() == length && field.bytes().all(is_hex);
        let is_id =
            |id: &str, length| is_field(id, length) && id.bytes().any(|digit| digit != b'0');
        let is_valid = version == "00" && is_id(trace, 32) && is_id(span, 16) && is_field(flags, 2);
        is_valid.then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_kept_as_it_is() {
        assert_eq!(TraceParent::parse(GOOD).map(|it| it.to_string()).as_deref(), Some(GOOD));
        assert_eq!(GOOD.len(), TraceParent::LENGTH);
    }

    #[test]
    fn anything_else_is_none() {
        let bad = [
            "".to_owned(),
            "----".to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD}0"),
            GOOD[..54].to_owned(),
            GOOD.to_uppercase(),
            GOOD.replace("00-", "ff-"),
            GOOD.replace('7', "g"),
            GOOD.replace('7', "\u{fc}"),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
        ];
        for text in bad {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
