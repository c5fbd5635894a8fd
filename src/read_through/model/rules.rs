//! What holds in all of a world of the model.

use super::payload::Drafted;
use super::world::Age;

/// What holds in all of a world.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// What becomes of an entry that grows old: nothing, if it is gone then.
    pub(super) ages: &'static [Option<Age>],
    pub(super) stale: Serves,
    /// What the loader gives.
    pub(super) answers: &'static [Drafted],
    /// A load is cancelled once no caller waits for it.
    pub(super) cancels: bool,
    /// It is loaded though the store fails.
    pub(super) may_load: bool,
    pub(super) without: Without,
}

/// What stale entries are good for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    Never,
    WhileRevalidating,
    IfError,
}

/// A rule of the store or the loader that the model can be run without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Without {
    Nothing,
    Watermarks,
    SecondWitnesses,
}
