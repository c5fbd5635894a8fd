//! `LoadGroup`: the permit that the items of a batch share.

use std::future::Future;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;

use crate::loads::LoadPermit;
use crate::locked::locked;

/// The items of a batch that go into one call of its loader: they share one permit. Each queues for itself,
/// so that an item can leave or pass alone. The first that gets a permit lets the others in.
pub(crate) struct LoadGroup {
    /// Locked to read or replace it, never across an `.await`. Dropped after the lock.
    permit: Mutex<Weak<LoadPermit>>,
    shared: Notify,
    /// Called when a permit is shared, before the items that queue are woken.
    on_share: Box<dyn Fn() + Send + Sync>,
}

impl LoadGroup {
    pub(crate) fn new(on_share: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let (permit, shared) = (Mutex::default(), Notify::new());
        Arc::new(Self { permit, shared, on_share: Box::new(on_share) })
    }

    /// The permit of the group, if an item has one.
    pub(crate) fn permit(&self) -> Option<Arc<LoadPermit>> {
        locked(&self.permit).upgrade()
    }

    /// Shares a new permit. If another item has been faster, it shares that one and gives this one back.
    pub(crate) fn share(&self, new: LoadPermit) -> Arc<LoadPermit> {
        let new = Arc::new(new);
        let mut permit = locked(&self.permit);
        if let Some(earlier) = permit.upgrade() {
            drop(permit);
            return earlier;
        }
        *permit = Arc::downgrade(&new);
        drop(permit);
        (self.on_share)();
        self.shared.notify_waiters();
        new
    }

    /// Waits until a permit is shared after this call.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) fn shared(&self) -> impl Future<Output = ()> + '_ {
        self.shared.notified()
    }
}

/// Gives an item of a batch its group, at the moment when it needs a permit.
pub(crate) type GroupOfItem = Arc<dyn Fn() -> Arc<LoadGroup> + Send + Sync>;
