//! Keys in spans and log messages, as much of them as the program lets out.

use std::fmt;

use tracing::{Span, field};

use crate::key::Key;
use crate::trace::TraceKeys;

/// A key as a log message shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownKey<'a> {
    key: &'a Key,
    keys: TraceKeys,
}

impl<'a> ShownKey<'a> {
    pub(super) fn of(key: &'a Key, keys: TraceKeys) -> Self {
        Self { key, keys }
    }

    /// Notes in a span what it may have of the key: its fields `key.digest` and `key.plain`.
    pub(super) fn note_in(self, span: &Span) {
        if self.keys == TraceKeys::Kind || span.is_disabled() {
            return;
        }
        span.record("key.digest", field::display(self.key.digest()));
        if self.keys == TraceKeys::Plain {
            span.record("key.plain", field::display(self.key.plain()));
        }
    }
}

impl fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys {
            TraceKeys::Plain => self.key.plain().fmt(f),
            TraceKeys::Kind | TraceKeys::Digest => self.key.fmt(f),
        }
    }
}
