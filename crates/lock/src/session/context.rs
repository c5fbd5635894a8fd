//! What the tasks of one lock share.

use bellwether::store::Watchers;

use super::pool::SessionPool;
use super::{Database, SessionSettings};
use crate::LocalQueues;

/// What the tasks of one lock share. The table of claims is not part of it: when the last handle is
/// dropped, the table is too, and the tasks release everything.
pub(super) struct SessionContext<D: Database> {
    pub(super) pool: SessionPool<D>,
    pub(super) settings: SessionSettings,
    pub(super) watchers: Watchers,
    pub(super) queues: LocalQueues,
}
