//! What the tasks of one lock have in common.

use bellwether::store::Watchers;

use super::pool::SessionPool;
use super::{Database, SessionSettings};

/// What tasks have in common. They do not know the claims, so that all is given up when the last
/// handle is dropped.
pub(super) struct SessionContext<D: Database> {
    pub(super) pool: SessionPool<D>,
    pub(super) settings: SessionSettings,
    pub(super) watchers: Watchers,
}
