//! Gates: one call is held, and let go by itself.

use tokio::sync::watch;

/// A gate at which calls wait until a test opens it, from [`On::hold`](super::On::hold) or
/// [`Fault::wait_at`](super::Fault::wait_at).
///
/// A handle: clones are the same gate. Calls that come after it was opened pass at once. If the
/// store is healed, all calls continue, whether their gate is open or not.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<Passage>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Passage {
    reached: bool,
    open: bool,
}

impl Gate {
    /// A closed gate, for [`Fault::wait_at`](super::Fault::wait_at).
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(Passage::default()))
    }

    /// Waits until a call has come to the gate, open or not.
    ///
    /// Waits for ever if none comes: a test that is not sure limits it by `tokio::time::timeout`.
    /// Cancel safe: dropping the future changes nothing.
    pub async fn reached(&self) {
        self.until(|passage| passage.reached).await;
    }

    /// Lets the calls go that wait at the gate, and those that come later.
    pub fn open(&self) {
        self.0.send_modify(|passage| passage.open = true);
    }

    pub(super) async fn pass(&self) {
        self.0.send_modify(|passage| passage.reached = true);
        self.until(|passage| passage.open).await;
    }

    async fn until(&self, is_so: impl Fn(Passage) -> bool) {
        // It cannot fail: we hold a sender.
        _ = self.0.subscribe().wait_for(|passage| is_so(*passage)).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
