//! `DerivedKey`: the key that the program's rules derive from a request, or why there is none.

use bellwether::Key;

/// The key that the program's rules derive from a request, or why there is none.
#[derive(Debug)]
pub(super) enum DerivedKey {
    Key(Key),
    /// The request bypasses the cache.
    Nothing,
    /// The route has no parameter of this name.
    #[cfg_attr(not(feature = "axum"), allow(dead_code, reason = "only templates name any"))]
    Unknown(String),
}
