//! Counting in a file that only a lock protects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether::store::Claim;
use bellwether_lock::{Lock, Released};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::{JoinSet, yield_now};

use super::{key, wait};

/// How tasks of a worker count: each holds the key 1 for each of its rounds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Count {
    /// The file, which holds the count and the last fencing token, with a space between.
    pub file: PathBuf,
    /// How many tasks count at once.
    pub tasks: u64,
    /// How often each of them counts.
    pub rounds: u64,
    /// The tasks take turns among themselves, as under a policy.
    pub in_turns: bool,
    /// Every grant has to have a fencing token.
    pub fenced: bool,
}

/// The count in a file, and the last fencing token.
pub fn read_count(file: &Path) -> (u64, u64) {
    let text = fs::read_to_string(file).expect("the file is there");
    let (count, fence) = text.split_once(' ').expect("a count and a fence");
    let [count, fence] = [count, fence].map(|number| number.parse().expect("a number"));
    (count, fence)
}

impl Count {
    /// Counts, and gives the longest wait for a grant.
    pub(super) async fn run(self, lock: Arc<dyn Lock>) -> Duration {
        let turn = Arc::new(Mutex::new(()));
        let mut counting = JoinSet::new();
        for _ in 0..self.tasks {
            let this = self.clone();
            let lock = Arc::clone(&lock);
            let turn = Arc::clone(&turn);
            counting.spawn(async move { this.count(&*lock, &turn).await });
        }
        counting.join_all().await.into_iter().max().unwrap_or_default()
    }

    async fn count(&self, lock: &dyn Lock, turn: &Mutex<()>) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..self.rounds {
            let _turn = if self.in_turns { Some(turn.lock().await) } else { None };
            let claim = Claim::new(key(1));
            let began = Instant::now();
            let grant = wait(lock, &claim, LEASE, PATIENCE, PAUSE).await;
            longest = longest.max(began.elapsed());
            self.count_one(grant.fence).await;
            let released = lock.release(claim).await.expect("an answer");
            assert_eq!(released, Released::Freed);
        }
        longest
    }

    /// Reads, gives way, and writes: without exclusion, counts get lost.
    async fn count_one(&self, fence: Option<u64>) {
        let (count, last) = read_count(&self.file);
        assert_eq!(fence.is_some(), self.fenced, "{fence:?}");
        assert!(fence.is_none_or(|fence| fence > last), "{fence:?} came after {last}");
        yield_now().await;
        let counted = format!("{} {}", count + 1, fence.unwrap_or(last));
        fs::write(&self.file, counted).expect("it can be written");
    }
}

/// Longer than any round.
const LEASE: Duration = Duration::from_secs(60);

/// For how long an attempt waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time between two attempts without a release message.
const PAUSE: Duration = Duration::from_secs(1);
