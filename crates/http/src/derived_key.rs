//! `DerivedKey`: what comes of deriving a key from a request.

use bellwether::Key;

/// What came of deriving a key from a request.
#[derive(Debug)]
pub(super) enum DerivedKey {
    Key(Key),
    /// The request bypasses the cache.
    Nothing,
    /// The route has no parameter of this name.
    #[cfg_attr(not(feature = "axum"), allow(dead_code, reason = "only templates name any"))]
    Unknown(String),
}
