//! The count of holds of the reentrant lock.

use std::time::Duration;

use bellwether::store::{Claim, Renew};
use bellwether_lock::{Attempt, Grant, Lock, Owner, ReentrantLock, Released, Request};
use bellwether_testkit::servers::{RedisServer, Reply};
use tokio::time::sleep;

use crate::world::{LONG, busy, claim, free, key, options};

async fn lock(server: &RedisServer) -> ReentrantLock {
    ReentrantLock::connect(options(server)).await.expect("a lock")
}

async fn take(lock: &ReentrantLock, claim: &Claim, owner: Owner, lease: Duration) -> Grant {
    let request = Request::new(claim.clone(), lease).owned_by(owner);
    match lock.acquire(request).await.expect("an answer") {
        Attempt::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn name() -> String {
    format!("bw:test:{{{}}}:holds", key(1).digest())
}

#[tokio::test]
async fn holds_are_counted_up_and_down() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let (owner, [outer, inner]) = (Owner::new(), [claim(1), claim(1)]);
    let count = async || lock.holds(key(1)).await.expect("a count");
    assert_eq!(count().await, 0);
    take(&lock, &outer, owner, LONG).await;
    assert_eq!(count().await, 1);
    take(&lock, &inner, owner, LONG).await;
    take(&lock, &inner, owner, LONG).await;
    assert_eq!(count().await, 2);
    free(&lock, &inner).await;
    assert_eq!(lock.release(inner).await.expect("an answer"), Released::NotHeld);
    assert_eq!(count().await, 1);
    free(&lock, &outer).await;
    assert_eq!(count().await, 0);
    assert_eq!(server.command(&["EXISTS", &name()]), Reply::Integer(0));
}

/// Otherwise a hold that is never released would keep the lock while any other hold is renewed.
#[tokio::test]
async fn a_hold_that_is_not_renewed_lapses_while_another_one_of_its_owner_is() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let (owner, [kept, forgotten]) = (Owner::new(), [claim(1), claim(1)]);
    let short = Duration::from_millis(100);
    take(&lock, &kept, owner, LONG).await;
    take(&lock, &forgotten, owner, short).await;
    sleep(short * 2).await;
    assert_eq!(lock.renew(&kept, LONG).await.expect("an answer"), Renew::Held);
    assert_eq!(lock.renew(&forgotten, LONG).await.expect("an answer"), Renew::Lost);
    assert_eq!(lock.holds(key(1)).await.expect("a count"), 1);
    busy(&lock, &claim(1)).await;
    free(&lock, &kept).await;
    take(&lock, &claim(1), Owner::new(), LONG).await;
}

#[tokio::test]
async fn what_others_have_put_under_its_name_keeps_it_locked() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    server.command(&["SET", &name(), "a string"]);
    assert_eq!(busy(&lock, &claim(1)).await.holder, None);
    assert_eq!(lock.holds(key(1)).await.expect("a count"), 0);
    assert_eq!(lock.release(claim(1)).await.expect("an answer"), Released::NotHeld);
    assert_eq!(server.command(&["GET", &name()]), Reply::Text("a string".into()));
}
