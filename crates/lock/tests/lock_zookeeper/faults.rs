//! A lost answer leaves no node, and takes no more than its time.

use std::net::Ipv4Addr;
use std::time::Duration;

use bellwether_lock::{Attempt, Lock, LockErrorKind, Released, ZooKeeperLock, ZooKeeperOptions};
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::free_port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use zookeeper_client::{Acls, CreateMode};

use crate::board::{
    Board, PATIENCE, SESSION, claim, fence, free, is_lost, key, parent, request, take,
};

const LIMIT: Duration = Duration::from_millis(300);

/// A lock that reaches the server by way of a proxy, and keeps its session through every temporary
/// fault.
async fn by_proxy(board: &Board) -> (FaultProxy, ZooKeeperLock) {
    let proxy = FaultProxy::start_raw(board.server.address()).await;
    let lock = ZooKeeperLock::connect(options(&proxy.address().to_string())).await.unwrap();
    (proxy, lock)
}

fn options(hosts: &str) -> ZooKeeperOptions {
    ZooKeeperOptions::new(hosts, "test").unwrap().session_timeout(Duration::from_secs(30))
}

/// Makes the parent of the key, so that the next claim needs a node only. Unlike one that a claim
/// makes, this parent stays, however long the test takes.
async fn warm_up(board: &Board, lock: &ZooKeeperLock) {
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    board.client.mkdir(&parent(&key()), &persistent).await.unwrap();
    let claim = claim();
    take(lock, &claim).await;
    free(lock, claim).await;
}

/// Case 58.
#[tokio::test]
async fn a_node_whose_making_was_not_answered_is_found_again() {
    let board = Board::start().await;
    let (proxy, lock) = by_proxy(&board).await;
    warm_up(&board, &lock).await;
    let claim = claim();
    proxy.cut_after(1);
    let patient = request(&claim, PATIENCE);
    let Ok(Attempt::Granted(grant)) = lock.acquire(patient).await else { panic!("it is free") };
    let node = board.node_of(&claim).await;
    assert!(node.ends_with("-0000000001"), "{node} is not the one that was made first");
    let node = board.client.check_stat(&node).await.unwrap().unwrap();
    assert_eq!(u64::try_from(node.czxid).unwrap(), fence(&grant));
    assert!(!is_lost(&grant));
    free(&lock, claim).await;
    board.has_queued(&key(), 0).await;
}

/// Case 15.
#[tokio::test]
async fn a_release_that_was_not_answered_is_answered_all_the_same() {
    let board = Board::start().await;
    let (proxy, lock) = by_proxy(&board).await;
    let claim = claim();
    take(&lock, &claim).await;
    proxy.cut_after(1);
    free(&lock, claim.clone()).await;
    assert_eq!(board.nodes(&key()).await, Vec::<String>::new());
    assert_eq!(lock.release(claim).await.unwrap(), Released::NotHeld);
}

/// Case 60: whatever was being answered, the listing among it.
#[tokio::test]
async fn a_connection_that_breaks_at_any_byte_leaves_no_node() {
    let board = Board::start().await;
    let (proxy, lock) = by_proxy(&board).await;
    for bytes in (1..=600).step_by(13) {
        proxy.cut_after(bytes);
        let claim = claim();
        let attempt = lock.acquire(request(&claim, PATIENCE)).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "at {bytes}: {attempt:?}");
        let released = lock.release(claim).await;
        assert!(matches!(released, Ok(Released::Freed)), "at {bytes}: {released:?}");
        assert_eq!(board.nodes(&key()).await, Vec::<String>::new(), "at {bytes}");
    }
}

/// Case 88, for the first requests of a claim: dropped at each of its awaits.
#[tokio::test]
async fn a_claim_that_is_dropped_at_any_await_and_released_leaves_no_node() {
    let board = Board::start().await;
    let lock = board.lock().await;
    for polls in 1..12 {
        let claim = claim();
        let mut asking = lock.acquire(request(&claim, Duration::ZERO));
        for _ in 0..polls {
            if futures_util::poll!(&mut asking).is_ready() {
                break;
            }
            // Enough for an answer: the next poll is the next await.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        drop(asking);
        lock.release(claim).await.unwrap();
        assert_eq!(board.nodes(&key()).await, Vec::<String>::new(), "after {polls} polls");
    }
}

/// A claim that is released while it asks or waits leaves nothing, in any order of the two.
#[tokio::test]
async fn a_release_concurrent_with_its_own_request_leaves_no_node() {
    let board = Board::start().await;
    let holder = board.lock().await;
    let lock = board.mortal_lock().await;
    for round in 0..60 {
        let held = claim();
        let claim = claim();
        let is_held = round % 2 == 0;
        if is_held {
            take(&holder, &held).await;
        }
        let asks = lock.acquire(request(&claim, Duration::from_millis(20)));
        let releases = async {
            tokio::time::sleep(Duration::from_micros(200 * round)).await;
            lock.release(claim.clone()).await
        };
        let (attempt, released) = tokio::join!(asks, releases);
        released.unwrap();
        // A claim that is granted after that was not released, so it has to be.
        if matches!(attempt, Ok(Attempt::Granted(_))) {
            lock.release(claim).await.unwrap();
        }
        if is_held {
            free(&holder, held).await;
        }
        // Longer than an answer takes, and shorter than the wait limit.
        tokio::time::timeout(SESSION, board.has_queued(&key(), 0)).await.unwrap();
    }
}

#[tokio::test]
async fn a_release_that_did_not_get_through_is_done_when_the_server_answers() {
    let board = Board::start().await;
    let proxy = FaultProxy::start_raw(board.server.address()).await;
    let options = ZooKeeperOptions::new(&proxy.address().to_string(), "test").unwrap();
    let options = options.session_timeout(Duration::from_secs(4));
    let lock = ZooKeeperLock::connect(options.timeout(LIMIT)).await.unwrap();
    let claim = claim();
    let grant = take(&lock, &claim).await;
    proxy.blackhole();
    let began = Instant::now();
    let error = lock.release(claim.clone()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::NoReply);
    assert!(error.to_string().contains("releasing `stock#"), "{error}");
    assert!(began.elapsed() < LIMIT * 2);
    // A claim that is being released is not granted any more.
    proxy.heal();
    let again = lock.acquire(request(&claim, Duration::ZERO)).await;
    assert!(!matches!(again, Ok(Attempt::Granted(_))), "{again:?}");
    board.has_queued(&key(), 0).await;
    assert!(!is_lost(&grant), "it was the session that ended");
}

/// Case 64.
#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_at_once() {
    let began = Instant::now();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let options = ZooKeeperOptions::new(&hosts, "test").unwrap();
    let error = ZooKeeperLock::connect(options).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unreachable);
    assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
}

/// Case 64.
#[tokio::test]
async fn a_server_that_says_nothing_is_an_error_in_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let hosts = listener.local_addr().unwrap().to_string();
    let lock = ZooKeeperLock::connect_lazily(
        ZooKeeperOptions::new(&hosts, "test").unwrap().timeout(LIMIT),
    )
    .expect("options");
    let began = Instant::now();
    let error = lock.acquire(request(&claim(), Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::NoReply);
    assert!(began.elapsed() < LIMIT * 2, "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn a_paused_server_costs_the_timeout_of_an_operation() {
    let board = Board::start().await;
    let lock = ZooKeeperLock::connect(board.options().timeout(LIMIT)).await.unwrap();
    board.server.stop();
    let began = Instant::now();
    let error = lock.acquire(request(&claim(), Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::NoReply);
    assert!(began.elapsed() < LIMIT * 2, "it took {:?}", began.elapsed());
    board.server.resume();
    let claim = claim();
    let began = Instant::now();
    while let Err(error) = lock.acquire(request(&claim, LIMIT)).await {
        assert!(began.elapsed() < PATIENCE, "{error}");
    }
    free(&lock, claim).await;
}

#[tokio::test]
async fn a_lazy_lock_waits_for_no_server_until_it_is_used() {
    let mut board = Board::start().await;
    let options = board.options();
    board.server.kill();
    let lock = ZooKeeperLock::connect_lazily(options).expect("options");
    let error = lock.acquire(request(&claim(), Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unreachable);
    board.server.restart();
    take(&lock, &claim()).await;
}

/// Whatever a server sends, the answer is an error.
#[tokio::test]
async fn a_server_that_speaks_nonsense_is_an_error_and_no_panic() {
    let negative = [&[0, 0, 0, 37][..], &[0; 4], &[255; 33]].concat();
    let nonsense: [&[u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[255; 64],
        &[0; 64],
        &[0, 0, 0, 5, 1, 2, 3, 4, 5],
        &negative,
    ];
    for said in nonsense {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let hosts = listener.local_addr().unwrap().to_string();
        let said = said.to_vec();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 64]).await;
                let _ = stream.write_all(&said).await;
            }
        });
        let options = ZooKeeperOptions::new(&hosts, "test").unwrap().timeout(LIMIT);
        let began = Instant::now();
        ZooKeeperLock::connect(options).await.unwrap_err();
        assert!(began.elapsed() < LIMIT * 2, "it took {:?}", began.elapsed());
        serving.abort();
    }
}

/// An answer with a wrong bit may say anything, even that it has no end. A key that is held by that
/// connection is then lost with its session.
#[tokio::test]
async fn an_answer_with_a_wrong_bit_does_no_lasting_harm() {
    let board = Board::start().await;
    let proxy = FaultProxy::start_raw(board.server.address()).await;
    let options = options(&proxy.address().to_string()).session_timeout(SESSION);
    let lock = ZooKeeperLock::connect(options.timeout(LIMIT)).await.unwrap();
    warm_up(&board, &lock).await;
    for byte in [0, 3, 7, 15, 19, 23, 40, 70, 90, 120] {
        proxy.flip(byte, 0x81);
        let claim = claim();
        // It may be granted or not: the test checks that it does no harm.
        let _ = lock.acquire(request(&claim, Duration::ZERO)).await;
        proxy.heal();
        let _ = lock.release(claim).await;
    }
    board.has_queued(&key(), 0).await;
    take(&lock, &claim()).await;
}
