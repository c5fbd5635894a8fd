//! `ErrorClass`: what an error of the loader says about the key.

use std::time::Duration;

/// What an error of the loader says about the key. The program decides it by
/// [`classify_error`](crate::service::ReadThroughLayerBuilder::classify_error).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// A failure of the source, or of this one request: only a second one in a row shows which. The
    /// default.
    ///
    /// The caller of that load gets the error. Its waiters share one more load, with the request of
    /// one of them. If that load fails too, the key is in
    /// [cooldown](crate::service::ReadThroughLayerBuilder::failure_windows).
    #[default]
    Failure,
    /// A failure of the source whatever was asked for, such as a refused connection. It needs no
    /// second one: all waiters share it, and the cooldown begins.
    SourceFailure,
    /// There is no such thing, such as a row that was not found. That is an answer and no failure:
    /// it replaces what is stored, and is stored itself for the layer's
    /// [`not_found_ttl`](crate::service::ReadThroughLayerBuilder::not_found_ttl). Callers of all processes get it
    /// as a hit; [`Error::is_not_found`](crate::Error::is_not_found) tells it.
    NotFound,
    /// The same, stored for this long.
    NotFoundFor(Duration),
    /// A failure of this one request, or one that is over at once, such as a conflict of
    /// transactions. The caller of that load gets the error, and its waiters load again at once,
    /// however many such errors there are. Nothing is remembered.
    Retry,
    /// A failure of this load. All its waiters share it, and nothing is remembered: the next caller
    /// loads.
    NotRemembered,
}
