//! `TraceKeys`: how much of a key is in spans and log messages.

/// How much of a key is in the spans and log messages of a layer: see
/// [`ReadThroughLayer::trace_keys`](crate::ReadThroughLayer::trace_keys).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceKeys {
    /// Spans have the [kind](crate::Key::kind) only. Log messages have the kind and the start of the
    /// [digest](crate::Key::digest).
    #[default]
    Kind,
    /// Spans have the digest too, in the field `key.digest`. It tells which spans and log messages are
    /// about one key, and which entry of a store that is. It hides a key that cannot be guessed; that
    /// of a short number can be.
    Digest,
    /// Spans have the digest, and the whole key as readable text in the field `key.plain`. Log messages
    /// have that text as the key. For keys that are harmless in the hands of all that read traces and
    /// logs.
    Plain,
}
