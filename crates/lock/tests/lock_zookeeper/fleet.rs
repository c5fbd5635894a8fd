//! Killed and stopped processes; exclusion over processes.

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use bellwether_lock::{Lock, ZooKeeperLock, ZooKeeperOptions};
use bellwether_testkit::locks::{
    Count, FencedResource, LockCommand, LockReply, LockSetup, LockWorker, read_count, work,
};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use crate::board::{Board, GRACE, PATIENCE, SESSION, claim, fence, free};

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(lock);
}

async fn lock(setup: LockSetup) -> Result<Arc<dyn Lock>, Box<dyn Error + Send + Sync>> {
    let options = ZooKeeperOptions::new(&setup.address, "test")?;
    let options = match &*setup.kind {
        "mortal" => options.session_timeout(SESSION),
        _ => options,
    };
    Ok(Arc::new(ZooKeeperLock::connect(options).await?))
}

/// A process. If `mortal`, its session ends soon when the process is silent.
async fn worker(kind: &str, board: &Board) -> LockWorker {
    let setup = LockSetup { kind: kind.to_owned(), address: board.server.hosts() };
    LockWorker::start("fleet::works", &setup).await
}

/// A process that holds the key.
async fn holder(board: &Board) -> (LockWorker, u64) {
    let holder = worker("mortal", board).await;
    let fence = holder.holds(1, LEASE).await.expect("a fence");
    (holder, fence)
}

/// A write that does not check whether the key is still held.
async fn writes(holder: &LockWorker) -> u64 {
    match holder.ask(&LockCommand::Write(1)).await {
        LockReply::Held(fence) => fence.expect("a fence"),
        other => panic!("{other:?}"),
    }
}

/// A lease that does not count for an open session.
const LEASE: Duration = Duration::from_secs(30);

/// Case 52.
#[tokio::test]
async fn the_key_of_a_killed_process_is_free_when_its_session_ends() {
    let board = Board::start().await;
    let (mut holder, held) = holder(&board).await;
    let lock = board.lock().await;
    let next = claim();
    let waiter = board.waiter(&lock, &next, 2).await;
    holder.kill();
    let began = Instant::now();
    let grant = waiter.await.expect("no panic");
    let took = began.elapsed();
    assert!(took < SESSION + GRACE, "it took {took:?}");
    assert!(fence(&grant) > held);
    free(&lock, next).await;
}

#[tokio::test]
async fn a_paused_process_is_notified_and_its_fence_is_refused() {
    let board = Board::start().await;
    let mut resource = FencedResource::default();
    let (holder, held) = holder(&board).await;
    let written = writes(&holder).await;
    assert!(written == held && resource.accepts(written));
    let lock = board.lock().await;
    let next = claim();
    let waiter = board.waiter(&lock, &next, 2).await;
    holder.stop();
    let began = Instant::now();
    let grant = waiter.await.expect("no panic");
    let took = began.elapsed();
    assert!(took < SESSION + GRACE, "it took {took:?}");
    assert!(resource.accepts(fence(&grant)));
    holder.resume();
    let began = Instant::now();
    let written = writes(&holder).await;
    assert!(!resource.accepts(written), "{written} was taken after {}", fence(&grant));
    assert_eq!(holder.loses(1).await, Some(held));
    assert!(began.elapsed() < GRACE, "it was notified after {:?}", began.elapsed());
    free(&lock, next).await;
}

/// Cases 6 to 8 and 80. `BELLWETHER_LOCK_ROUNDS` sets how often each of the 64 tasks counts (10).
#[tokio::test]
async fn eight_processes_of_eight_tasks_count_exactly_and_their_fences_grow() {
    const EACH: u64 = 8;
    let rounds = std::env::var("BELLWETHER_LOCK_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let board = Board::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("count");
    fs::write(&file, "0 0").unwrap();
    let began = Instant::now();
    let workers = join_all((0..EACH).map(|_| worker("lasting", &board))).await;
    let count = LockCommand::Count(Count {
        file: file.clone(),
        tasks: EACH,
        rounds,
        in_turns: false,
        fenced: true,
    });
    let patience = PATIENCE + Duration::from_millis(100) * u32::try_from(rounds * 64).unwrap();
    let counting: Vec<_> = workers.iter().map(|worker| worker.send(&count)).collect();
    for counting in counting {
        let counted = timeout(patience, counting).await.expect("it comes to an end");
        assert!(matches!(counted, Ok(LockReply::Counted { .. })), "{counted:?}");
    }
    let (count, _) = read_count(&file);
    assert_eq!(count, EACH * EACH * rounds);
    println!("{count} rounds took {:?}", began.elapsed());
    board.has_queued(claim().key(), 0).await;
}
