//! Three servers, of which one dies.

use std::time::Duration;

use bellwether::store::{Claim, Renew};
use bellwether_lock::{Lock, ZooKeeperLock, ZooKeeperOptions};
use bellwether_testkit::servers::ZooKeeperServer;
use tokio::time::{Instant, sleep};
use zookeeper_client::Client;

use crate::board::{PATIENCE, claim, fence, free, is_lost, parent, take, wait};

async fn lock(hosts: &str) -> ZooKeeperLock {
    ZooKeeperLock::connect(ZooKeeperOptions::new(hosts, "test").unwrap()).await.unwrap()
}

/// The answer of servers that are electing a leader.
async fn renewed(lock: &ZooKeeperLock, claim: &Claim) -> Renew {
    let began = Instant::now();
    loop {
        match lock.renew(claim, PATIENCE).await {
            Ok(renewed) => return renewed,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_ensemble_leader_that_dies_loses_neither_the_key_nor_the_queue() {
    let mut servers = ZooKeeperServer::start_ensemble();
    let hosts = servers.each_ref().map(ZooKeeperServer::hosts).join(",");
    let holder = lock(&hosts).await;
    let waiter = lock(&hosts).await;
    let held = claim();
    let waiting = claim();
    let first = take(&holder, &held).await;
    let in_line = waiting.clone();
    let waits = tokio::spawn(async move {
        let grant = wait(&waiter, &in_line).await;
        free(&waiter, in_line).await;
        fence(&grant)
    });
    let client = Client::connect(&hosts).await.unwrap();
    while client.list_children(&parent(held.key())).await.unwrap().len() < 2 {
        sleep(Duration::from_millis(2)).await;
    }
    let leader = servers.iter_mut().find(|server| server.leads());
    leader.expect("one server leads").kill();
    assert_eq!(renewed(&holder, &held).await, Renew::Held);
    assert!(!is_lost(&first) && !waits.is_finished());
    free(&holder, held).await;
    assert!(waits.await.expect("no panic") > fence(&first));
    // Its transactions are younger than those of the leader that died.
    let next = claim();
    assert!(fence(&take(&holder, &next).await) > fence(&first));
}
