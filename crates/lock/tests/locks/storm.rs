//! Everything at once, on several threads: callers that wait, hold, give up and are cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bellwether_lock::{LocalLock, Lock, LockErrorKind, LockGuard, Locks};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::support::{MS, Operation, Remote, SECOND, Scripted, item, locks};

const KEYS: usize = 4;

/// The resource of each key, for one task at a time.
#[derive(Default)]
struct World {
    inside: [AtomicUsize; KEYS],
    most: AtomicUsize,
    held: AtomicU64,
}

impl World {
    async fn touch<L: Lock>(&self, of: usize, held: &LockGuard<L>) {
        let now = self.inside[of].fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.held.fetch_add(1, Ordering::SeqCst);
        // A task that is cancelled in here is outside again.
        let _leaves = Leaves(&self.inside[of]);
        for _ in 0..3 {
            assert!(!held.is_lost());
            yield_now().await;
        }
    }
}

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One caller: it takes some key in some way, and leaves in another.
async fn call(locks: &Locks<Remote<Scripted>>, world: &World, chance: &mut StdRng) {
    let of = chance.random_range(0..KEYS);
    let key = item(of as u64);
    let patience = Duration::from_micros(chance.random_range(0..3_000));
    let way = chance.random_range(0..3);
    let end = chance.random_range(0..3);
    let takes = async {
        let taken = match way {
            0 => locks.try_lock(&key).await,
            1 => locks.lock_before(&key, tokio::time::Instant::now() + patience).await,
            _ => locks.lock(&key).await,
        };
        let held = match taken {
            Ok(held) => held,
            Err(error) => {
                let expected = [LockErrorKind::Busy, LockErrorKind::TimedOut];
                let scripted = [LockErrorKind::NoReply, LockErrorKind::Unreachable];
                let is_scripted = scripted.contains(&error.kind());
                assert!(expected.contains(&error.kind()) || is_scripted, "{error}");
                return;
            }
        };
        world.touch(of, &held).await;
        if end == 0 {
            held.release().await.ok();
        }
    };
    match end {
        // Cut off at some await.
        1 => drop(timeout(patience, takes).await),
        _ => takes.await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_a_storm_one_holds_at_a_time_and_nothing_is_left() {
    let lock = Scripted::default();
    let fleet: Vec<_> = (0..4).map(|_| locks(lock.clone())).collect();
    let world = Arc::new(World::default());
    let mut callers = JoinSet::new();
    for seed in 0..32 {
        let locks = fleet[seed % 4].clone();
        let world = Arc::clone(&world);
        callers.spawn(async move {
            let mut chance = StdRng::seed_from_u64(seed as u64);
            for _ in 0..60 {
                call(&locks, &world, &mut chance).await;
            }
        });
    }
    // And for a while some requests and answers are lost. (The last callers would be alone with all
    // of that.)
    let troubles = tokio::spawn(async move {
        for round in 0..40 {
            let kind = [LockErrorKind::NoReply, LockErrorKind::Unreachable][round % 2];
            for operation in [Operation::Acquire, Operation::Release] {
                lock.fail(operation, kind, 1);
            }
            sleep(MS * 10).await;
        }
    });
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    troubles.await.unwrap();
    assert_eq!(world.most.load(Ordering::SeqCst), 1);
    assert!(world.held.load(Ordering::SeqCst) > 200, "{:?}", world.held);
    for locks in fleet {
        assert_eq!(locks.shutdown(SECOND * 10).await, 0);
        assert!(locks.is_empty());
    }
}

/// A resource that remembers the largest fence it has seen.
#[derive(Default)]
struct Fenced {
    largest: u64,
    value: &'static str,
}

impl Fenced {
    fn write(&mut self, fence: u64, value: &'static str) -> bool {
        let is_in_time = fence >= self.largest;
        if is_in_time {
            *self = Self { largest: fence, value };
        }
        is_in_time
    }
}

/// A process that was stopped between its last check of the lock and its write.
#[tokio::test]
async fn a_late_write_is_refused_by_its_fence() {
    let lock = LocalLock::new();
    let short = |lock: &LocalLock| Locks::builder(lock.clone()).lease(MS * 100).build().unwrap();
    let stopped = short(&lock);
    let other = short(&lock);
    let mut resource = Fenced::default();
    let late = stopped.lock(&item(1)).await.unwrap();
    assert!(!late.is_lost() && resource.write(late.fence(), "first"));
    std::thread::sleep(MS * 110);
    let next = other.lock(&item(1)).await.unwrap();
    assert!(resource.write(next.fence(), "second"));
    assert!(!resource.write(late.fence(), "late") && resource.value == "second");
    assert!(late.is_lost() && !next.is_lost());
}
