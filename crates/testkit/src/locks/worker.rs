//! A worker process that takes locks: its own side, and its test's.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether_lock::Lock;

use super::hold::Hold;
use super::messages::{LockCommand, LockReply, LockSetup};
use crate::processes::{self, Worker};

/// A process that locks as it is commanded.
pub type LockWorker = Worker<LockCommand, LockReply>;

impl LockWorker {
    /// Lets it take a key that is free, and gives the fencing token, if the lock has any.
    pub async fn holds(&self, key: u64, lease: Duration) -> Option<u64> {
        let lease_ms = lease.as_millis() as u64;
        match self.ask(&LockCommand::Hold { key, lease_ms, patience_ms: 0 }).await {
            LockReply::Held(fence) => fence,
            other => panic!("a free key: {other:?}"),
        }
    }

    /// Waits until it is notified of the loss of a key, and returns the fencing token it had.
    pub async fn loses(&self, key: u64) -> Option<u64> {
        match self.ask(&LockCommand::Lose(key)).await {
            LockReply::Lost(fence) => fence,
            other => panic!("a held key: {other:?}"),
        }
    }
}

/// The state of a worker.
struct Locker {
    lock: Arc<dyn Lock>,
    /// Held for a map operation, never across an `.await`.
    holds: Mutex<HashMap<u64, Hold>>,
}

/// Works with the lock that is made as a [`LockWorker`] is set up: see [`processes::work`].
pub fn work<F>(lock: impl FnOnce(LockSetup) -> F)
where
    F: Future<Output = Result<Arc<dyn Lock>, Box<dyn Error + Send + Sync>>>,
{
    let open = async |setup| Ok(Locker { lock: lock(setup).await?, holds: Mutex::default() });
    processes::work(open, |locker: Arc<Locker>, command| async move { locker.obey(command).await });
}

impl Locker {
    async fn obey(&self, command: LockCommand) -> LockReply {
        match command {
            LockCommand::Hold { key, lease_ms, patience_ms } => {
                self.hold(key, Duration::from_millis(lease_ms), Duration::from_millis(patience_ms))
                    .await
            }
            LockCommand::Write(key) => LockReply::Held(self.held(key).fence),
            LockCommand::Lose(key) => LockReply::Lost(self.held(key).lost().await),
            LockCommand::Count(count) => {
                let longest = count.run(Arc::clone(&self.lock)).await;
                LockReply::Counted { longest_us: longest.as_micros() as u64 }
            }
        }
    }

    async fn hold(&self, key: u64, lease: Duration, patience: Duration) -> LockReply {
        match Hold::take(&self.lock, key, lease, patience).await {
            Ok(Some(hold)) => {
                let fence = hold.fence;
                locked(&self.holds).insert(key, hold);
                LockReply::Held(fence)
            }
            Ok(None) => LockReply::Busy,
            Err(error) => LockReply::Failed(format!("{:?}", error.kind())),
        }
    }

    fn held(&self, key: u64) -> Hold {
        let holds = locked(&self.holds);
        holds.get(&key).expect("it took the key").clone()
    }
}
