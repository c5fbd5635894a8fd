//! Worker processes that take locks, and what fencing tokens protect.
//!
//! A suite lets its workers [`work`] with the locks that it is about, and starts a [`LockWorker`].

mod count;
mod hold;
mod messages;
mod worker;

pub use self::count::{Count, read_count};
pub use self::messages::{LockCommand, LockReply, LockSetup};
pub use self::worker::{LockWorker, work};

use std::time::Duration;

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::{Attempt, Grant, Lock, Request};
use tokio::time::timeout;

/// The key of that number, as workers name it.
pub fn key(number: u64) -> Key {
    Key::of("stock").with(number)
}

/// Asks for a key with this patience until it is granted. Between two attempts it waits for a
/// release message or the end of the holder's lease, and no longer than the pause.
pub async fn wait(
    lock: &dyn Lock,
    claim: &Claim,
    lease: Duration,
    patience: Duration,
    pause: Duration,
) -> Grant {
    loop {
        let mut watch = lock.watch(claim.key());
        let request = Request::new(claim.clone(), lease).patient_for(patience);
        let asked = lock.acquire(request).await.expect("an answer");
        let Attempt::Busy(busy) = asked else {
            let Attempt::Granted(grant) = asked else { panic!("{asked:?}") };
            return grant;
        };
        let pause = busy.remaining.map_or(pause, |left| pause.min(left + TICK));
        let _ = timeout(pause, watch.changed()).await;
    }
}

/// A resource that remembers the largest fencing token it has seen, and refuses smaller ones.
#[derive(Debug, Default)]
pub struct FencedResource {
    largest: u64,
}

impl FencedResource {
    /// Whether a write with this token is let in.
    pub fn accepts(&mut self, fence: u64) -> bool {
        let is_newer = fence >= self.largest;
        self.largest = self.largest.max(fence);
        is_newer
    }
}

/// By how much a lease may be over later than was said.
const TICK: Duration = Duration::from_millis(2);
