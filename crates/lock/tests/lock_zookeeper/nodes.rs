//! The paths of nodes, their rights, and their removal.

use std::time::Duration;

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::{Attempt, Lock, LockErrorKind, ZooKeeperLock, ZooKeeperOptions};
use tokio::time::{Instant, sleep};
use zookeeper_client::Client;

use crate::board::{Board, PATIENCE, busy, claim, free, key, parent, request, take};

/// Waits until there are so many nodes below a path.
async fn has_below(client: &Client, path: &str, count: usize) {
    let began = Instant::now();
    while client.count_descendants_number(path).await.unwrap() != count {
        assert!(began.elapsed() < PATIENCE, "{:?}", client.list_children(path).await);
        sleep(Duration::from_millis(10)).await;
    }
}

/// Case 84.
#[tokio::test]
async fn nothing_is_left_of_three_hundred_keys() {
    let board = Board::start().await;
    let lock = board.lock().await;
    for item in 0..300 {
        let claim = Claim::new(Key::of("item").with(item));
        take(&lock, &claim).await;
        free(&lock, claim).await;
    }
    has_below(&board.client, "/bellwether/test", 0).await;
    let shown = format!("{lock:?}");
    assert!(shown.contains("claims: 0"), "{shown}");
}

/// Case 84.
#[tokio::test]
async fn a_key_with_a_waiter_keeps_its_parent() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let held = claim();
    take(&lock, &held).await;
    // Longer than the server waits between its rounds.
    sleep(Duration::from_millis(500)).await;
    assert_eq!(board.nodes(&key()).await.len(), 1);
    free(&lock, held).await;
    let began = Instant::now();
    while board.client.check_stat(&parent(&key())).await.unwrap().is_some() {
        assert!(began.elapsed() < PATIENCE);
        sleep(Duration::from_millis(10)).await;
    }
    // And it is made again.
    take(&lock, &claim()).await;
}

/// Case 84.
#[tokio::test]
async fn the_path_below_which_everything_is_is_made() {
    let board = Board::start().await;
    let hosts = format!("{}/very/deep/path", board.server.hosts());
    let lock =
        ZooKeeperLock::connect(ZooKeeperOptions::new(&hosts, "test").unwrap()).await.unwrap();
    take(&lock, &claim()).await;
    let path = format!("/very/deep/path{}", parent(&key()));
    assert_eq!(board.client.list_children(&path).await.unwrap().len(), 1);
    assert_eq!(board.nodes(&key()).await, Vec::<String>::new());
}

/// Case 77.
#[tokio::test]
async fn namespaces_are_apart() {
    let board = Board::start().await;
    let [shop, other] = ["shop", "other"].map(|name| board.options_for(name));
    let shop = ZooKeeperLock::connect(shop).await.unwrap();
    let other = ZooKeeperLock::connect(other).await.unwrap();
    let held = claim();
    take(&shop, &held).await;
    take(&other, &claim()).await;
    busy(&shop, &claim(), Duration::ZERO).await;
    free(&shop, held).await;
}

/// Case 84.
#[tokio::test]
async fn private_nodes_without_an_owner_leave_nothing() {
    let board = Board::start().await;
    let lock = ZooKeeperLock::connect(board.options().private()).await.unwrap();
    let error = lock.acquire(request(&claim(), Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("ZooKeeperOptions::auth"), "{error}");
    assert_eq!(board.client.check_stat("/bellwether").await.unwrap(), None);
}

#[tokio::test]
async fn private_nodes_are_accessible_to_the_same_user_only() {
    let board = Board::start().await;
    let options = || board.options().private();
    let ours = ZooKeeperLock::connect(options().auth("digest", b"shop:secret")).await.unwrap();
    let same = ZooKeeperLock::connect(options().auth("digest", b"shop:secret")).await.unwrap();
    let other = ZooKeeperLock::connect(options().auth("digest", b"shop:guess")).await.unwrap();
    let held = claim();
    take(&ours, &held).await;
    busy(&same, &claim(), Duration::ZERO).await;
    let error = other.acquire(request(&claim(), Duration::ZERO)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Refused);
    assert!(!error.to_string().contains("guess"), "{error}");
    free(&ours, held).await;
    take(&same, &claim()).await;
}

/// A user that may not create the nodes of a key holds nothing.
#[tokio::test]
async fn a_user_that_may_not_create_nodes_is_refused() {
    let board = Board::start().await;
    let options = board.options().private().auth("digest", b"shop:secret");
    let ours = ZooKeeperLock::connect(options).await.unwrap();
    let held = claim();
    take(&ours, &held).await;
    free(&ours, held).await;
    let stranger = board.lock().await;
    let attempt = stranger.acquire(request(&claim(), PATIENCE)).await;
    let Err(error) = attempt else { panic!("{attempt:?}") };
    assert_eq!(error.kind(), LockErrorKind::Refused);
    let Ok(Attempt::Granted(_)) = ours.acquire(request(&claim(), Duration::ZERO)).await else {
        panic!("a stranger is in the way");
    };
}
