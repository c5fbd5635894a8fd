//! What the keepers of one lock have in common.

use super::links::Links;
use super::{Database, Settings};
use crate::lock::Watchers;

/// What keepers have in common. They do not know the claims, so that all is given up when the last
/// handle is dropped.
pub(super) struct Shared<D: Database> {
    pub(super) links: Links<D>,
    pub(super) settings: Settings,
    pub(super) watchers: Watchers,
}
