//! The count of holds of the reentrant lock.

use std::time::Duration;

use bellwether::store::{Claim, Renew};
use bellwether_lock::{
    Attempt, Grant, Lock, LockErrorKind, LockWait, Locks, Owner, ReentrantLock, Released, Request,
};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::until;
use tokio::time::{sleep, timeout};

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

/// Over RESP2, a mark would stay for ever. With tracking, the server would track the name for ever.
#[tokio::test]
async fn asking_again_for_a_free_key_leaves_nothing() {
    let server = RedisServer::start();
    let told = ReentrantLock::connect(options(&server).resp2()).await.expect("a lock");
    for lock in [lock(&server).await, told] {
        let mut request = Request::new(claim(1), LONG).owned_by(Owner::new());
        request.is_again = true;
        let Attempt::Busy(busy) = lock.acquire(request).await.expect("an answer") else {
            panic!("a key that is not held was granted again: {lock:?}")
        };
        assert_eq!((busy.holder, busy.remaining), (None, None), "{lock:?}");
        assert_eq!(server.command(&["EXISTS", &name()]), Reply::Integer(0), "{lock:?}");
        let tracked = server.info("stats", "tracking_total_keys");
        assert_eq!(tracked.as_deref(), Some("0"), "{lock:?}");
    }
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

/// Each connection is a process of its own. In the second one, a rival waits for the owner.
#[tokio::test]
async fn an_owner_takes_it_again_in_another_process_where_a_rival_waits_first() {
    let server = RedisServer::start();
    let owner = Owner::new();
    let outer = Locks::new(lock(&server).await).owned_by(owner);
    let process = Locks::new(lock(&server).await).wait(LockWait::at_most(LONG));
    let held = outer.lock(&key(1)).await.expect("it is free");
    let rival = process.clone().owned_by(Owner::new());
    let waits = tokio::spawn(async move { rival.lock(&key(1)).await });
    let is_refused = || server.info("stats", "tracking_total_items").as_deref() == Some("2");
    // The holder reads the name, too.
    until("the rival was refused", is_refused).await;
    let inner = process.clone().owned_by(owner);
    let tried = inner.try_lock(&key(1)).await.expect("its owner has it");
    let waited = timeout(LONG / 4, inner.lock(&key(1))).await.expect("it does not wait");
    let waited = waited.expect("its owner has it");
    assert_eq!([tried.fence(), waited.fence()], [held.fence(); 2]);
    let other = process.clone().owned_by(Owner::new());
    let refused = other.try_lock(&key(1)).await.expect_err("another owner has it");
    assert_eq!(refused.kind(), LockErrorKind::Busy);
    for guard in [tried, waited, held] {
        assert!(!waits.is_finished(), "two owners have it");
        guard.release().await.expect("an answer");
    }
    let granted = timeout(LONG / 4, waits).await.expect("it is free").expect("no panic");
    granted.expect("it is free").release().await.expect("an answer");
}
