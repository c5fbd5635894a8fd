//! The options of a `MemoryStore`.

/// The bounds of a [`MemoryStore`](super::MemoryStore). A number of entries is enough to make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct MemoryOptions {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
    pub(super) name: &'static str,
}

impl MemoryOptions {
    /// The default of [`max_bytes`](Self::max_bytes): 64 MiB.
    pub const DEFAULT_MAX_BYTES: usize = 64 * 1024 * 1024;

    /// A store of at most this many entries and 64 MiB. With zero of either it keeps no entries, and
    /// callers of layers over it still share loads.
    pub fn new(max_entries: usize) -> Self {
        Self { max_entries, max_bytes: Self::DEFAULT_MAX_BYTES, name: "memory" }
    }

    /// Sets how many bytes are kept at most.
    ///
    /// An entry counts the memory that it takes: its encoded value, its decoded value (so that a
    /// hit decodes nothing), its key, 48 bytes for each tag, and 640 bytes for the tables. A
    /// decoded value counts as much as the encoded one, unless its [codec](crate::codec::Codec::weight) knows better. A response
    /// of HTTP or gRPC shares its content and the values of its fields with the encoded form. It
    /// counts about 300 bytes more, and 112 for each field. A page of 2 KiB with ten fields counts
    /// about 5 KiB.
    ///
    /// Leases, remembered failures and watermarks are not counted. They end by themselves: a lease
    /// with its load, a failure with its window, a watermark ten minutes after its invalidation. If
    /// there are more than 16,384 of them, failures are removed and watermarks of several keys are
    /// merged. A merged watermark refuses some commits of loads that were slower than their lease.
    ///
    /// A store is in up to 16 parts of 4 MiB and more. An entry that is larger than its part is not kept: the
    /// answer has the status `Led { stored: false }`, and a warning is logged.
    ///
    /// Default: 64 MiB, which a small service can spare.
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Names the store in metrics.
    ///
    /// Default: `memory`, since most programs have one.
    pub fn name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

impl From<usize> for MemoryOptions {
    fn from(max_entries: usize) -> Self {
        Self::new(max_entries)
    }
}
