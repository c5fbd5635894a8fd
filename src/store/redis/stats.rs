//! Counters of a `RedisStore`.

/// Counters of a [`RedisStore`](super::RedisStore) since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Attempts to connect, successful or not.
    pub connects: u64,
    /// How often the server was taken to be down.
    pub outages: u64,
    /// Push messages of the server about changes, and disconnections.
    pub pushes: u64,
    /// Entries that could not be read and counted as misses: damaged, of a newer version of this
    /// crate, of another key, or of a foreign type.
    pub unreadable: u64,
}
