//! The versions of Redis that a server can be.

/// A version of Redis. They differ in what a script reads for tracking, and in texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerVersion {
    /// Redis 6.2.
    V6,
    /// Redis 7.0.
    #[default]
    V7,
    /// Redis 8.2, which is as 7.2 here.
    V8,
    /// Valkey 9.
    Valkey,
}

impl ServerVersion {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::V6, Self::V7, Self::V8, Self::Valkey];

    /// What it says of itself in `HELLO`.
    pub(super) fn name_and_number(self) -> [&'static str; 2] {
        match self {
            Self::V6 => ["redis", "6.2.14"],
            Self::V7 => ["redis", "7.0.15"],
            Self::V8 => ["redis", "8.2.3"],
            Self::Valkey => ["valkey", "9.1.2"],
        }
    }
}
