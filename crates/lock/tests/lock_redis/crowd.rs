//! Many claims that ask one lock at the same time.

use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{Attempt, Lock, LockErrorKind, LockFuture, RedisLock, Released};
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use futures_util::{FutureExt, poll};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::world::{LONG, attempt, busy, claim, free, key, options, take};

const CLAIMS: u64 = 64;

async fn lock(server: &RedisServer) -> RedisLock {
    let lock = RedisLock::connect(options(server)).await.expect("a lock");
    // The first grant sets the counter, which a claim does alone.
    for number in 0..CLAIMS {
        let ours = claim(number);
        take(&lock, &ours, LONG).await;
        free(&lock, &ours).await;
    }
    lock
}

/// Takes and releases many locks at the same time, twice: the first time sets the counter.
pub(crate) async fn visit(lock: &RedisLock) {
    for _ in 0..2 {
        let ours = claims();
        join_all(ours.iter().map(|claim| take(lock, claim, LONG))).await;
        join_all(ours.iter().map(|claim| free(lock, claim))).await;
    }
}

fn claims() -> Vec<Claim> {
    (0..CLAIMS).map(claim).collect()
}

fn name(number: u64) -> String {
    format!("bw:test:{{{}}}:lock", key(number).digest())
}

fn scripts(server: &RedisServer) -> u64 {
    let stats = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn claims_that_ask_at_the_same_time_share_scripts() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let ours = claims();
    let before = scripts(&server);
    let grants = join_all(ours.iter().map(|claim| take(&lock, claim, LONG))).await;
    join_all(ours.iter().map(|claim| free(&lock, claim))).await;
    let sent = scripts(&server) - before;
    assert!(sent <= CLAIMS / 3, "{sent} scripts for {CLAIMS} claims");
    assert!(grants.iter().all(|grant| grant.fence.is_some()));
    for number in 0..CLAIMS {
        assert_eq!(server.command(&["EXISTS", &name(number)]), Reply::Integer(0));
    }
}

#[tokio::test]
async fn fences_grow_whether_claims_ask_alone_or_with_others() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let mut last = vec![0; CLAIMS as usize];
    for round in 0..6 {
        let ours = claims();
        let grants = if round % 2 == 0 {
            join_all(ours.iter().map(|claim| take(&lock, claim, LONG))).await
        } else {
            let mut grants = Vec::new();
            for claim in &ours {
                grants.push(take(&lock, claim, LONG).await);
            }
            grants
        };
        for (grant, last) in grants.iter().zip(&mut last) {
            let fence = grant.fence.expect("a fence");
            assert!(fence > *last, "{fence} after {last}");
            *last = fence;
        }
        join_all(ours.iter().map(|claim| free(&lock, claim))).await;
    }
}

#[tokio::test]
async fn a_taken_lock_is_busy_for_one_of_many_and_free_for_the_others() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let holder = claim(CLAIMS - 1);
    let fence = take(&lock, &holder, LONG).await.fence;
    let ours = claims();
    let (last, others) = ours.split_last().expect("many");
    let taken = join_all(others.iter().map(|claim| take(&lock, claim, LONG)));
    let (_, busy) = tokio::join!(taken, busy(&lock, last));
    assert_eq!(busy.holder.map(|holder| holder.grant), fence);
    assert!(busy.remaining.is_some());
    let not_held = async { lock.release(last.clone()).await.expect("an answer") };
    let freed = join_all(others.iter().map(|claim| free(&lock, claim)));
    let (_, not_held) = tokio::join!(freed, not_held);
    assert_eq!(not_held, Released::NotHeld);
    free(&lock, &holder).await;
}

#[tokio::test]
async fn one_lock_is_granted_to_one_of_many_claims() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let ours: Vec<_> = (0..CLAIMS).map(|_| claim(1)).collect();
    let answers = join_all(ours.iter().map(|claim| attempt(&lock, claim, LONG))).await;
    let granted = |answer: &_| matches!(answer, Ok(Attempt::Granted(_)));
    assert_eq!(answers.iter().filter(|answer| granted(answer)).count(), 1);
    let released = join_all(ours.iter().map(|claim| lock.release(claim.clone()))).await;
    let freed = released.iter().filter(|it| matches!(it, Ok(Released::Freed)));
    assert_eq!(freed.count(), 1);
}

#[tokio::test]
async fn an_error_of_one_of_many_claims_is_its_own() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let Reply::Array(counters) = server.command(&["KEYS", "bw:test:fence:*"]) else {
        panic!("no names")
    };
    // A counter that cannot count is set again by the claim that finds it.
    for counter in counters.into_iter().take(3).map(Reply::text) {
        server.command(&["SET", &counter, "damaged"]);
    }
    server.command(&["RPUSH", &name(CLAIMS - 1), "of another type"]);
    let ours = claims();
    let (last, others) = ours.split_last().expect("many");
    let taken = join_all(others.iter().map(|claim| take(&lock, claim, LONG)));
    let (_, busy) = tokio::join!(taken, busy(&lock, last));
    assert_eq!(busy.holder, None);
    let freed = join_all(others.iter().map(|claim| free(&lock, claim)));
    let (_, released) = tokio::join!(freed, lock.release(last.clone()));
    assert_eq!(released.expect("an answer"), Released::NotHeld);
}

#[tokio::test]
async fn a_request_that_is_dropped_before_it_is_sent_is_not_granted() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let ours = claims();
    let mut requests: Vec<_> =
        ours.iter().map(|claim| Box::pin(attempt(&lock, claim, LONG))).collect();
    for request in &mut requests {
        assert!(request.now_or_never().is_none());
    }
    drop(requests.split_off(CLAIMS as usize / 2));
    join_all(requests).await;
    let (kept, dropped) = ours.split_at(CLAIMS as usize / 2);
    for claim in dropped {
        assert_eq!(lock.release(claim.clone()).await.expect("an answer"), Released::NotHeld);
    }
    join_all(kept.iter().map(|claim| free(&lock, claim))).await;
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Begins requests in a runtime, whose tasks do not run meanwhile.
fn begin<T>(runtime: &Runtime, requests: &mut [LockFuture<T>]) {
    runtime.block_on(async {
        for request in requests {
            assert!(poll!(request).is_pending());
        }
    });
}

/// Lets the tasks of a runtime run for a moment.
fn run_tasks(runtime: &Runtime) {
    runtime.block_on(async {
        for _ in 0..4 {
            yield_now().await;
        }
    });
}

#[test]
fn a_release_in_a_script_whose_runtime_ended_does_not_say_that_the_lock_was_not_held() {
    let server = RedisServer::start();
    let (lasting, passing) = (runtime(), runtime());
    let lock = lasting.block_on(lock(&server));
    // A server that does not know the script is sent its text, which the runtime that ends would have to do.
    lasting.block_on(visit(&lock));
    let ours = claims();
    lasting.block_on(join_all(ours.iter().map(|claim| take(&lock, claim, LONG))));
    let mut releases: Vec<_> = ours.iter().map(|claim| lock.release(claim.clone())).collect();
    begin(&passing, &mut releases);
    run_tasks(&passing);
    // The connection, which is of the other runtime, sends them, and nothing reads the replies.
    let is_held = |number| server.command(&["EXISTS", &name(number)]) != Reply::Integer(0);
    lasting.block_on(async {
        while (0..CLAIMS).any(is_held) {
            sleep(Duration::from_millis(1)).await;
        }
    });
    drop(passing);
    let released = lasting.block_on(join_all(releases));
    assert!(released.iter().all(|released| match released {
        Ok(released) => *released == Released::Freed,
        Err(error) => error.kind() == LockErrorKind::Unreachable,
    }));
    assert!(released.iter().any(Result::is_err));
}
