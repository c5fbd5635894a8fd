//! The end of all faults, which releases the calls that are held up.

use tokio::sync::watch;

/// Whether the store was healed since a call began.
#[derive(Debug)]
pub(super) struct Healed {
    healings: watch::Sender<u64>,
    before: u64,
}

impl Healed {
    pub(super) fn since_now(healings: watch::Sender<u64>) -> Self {
        let before = *healings.borrow();
        Self { healings, before }
    }

    pub(super) fn is_so(&self) -> bool {
        *self.healings.borrow() != self.before
    }

    pub(super) async fn wait(&self) {
        // It cannot fail: we hold a sender.
        _ = self.healings.subscribe().wait_for(|healings| *healings != self.before).await;
    }
}
