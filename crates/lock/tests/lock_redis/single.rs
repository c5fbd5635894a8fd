//! Names, values and settings of the lock on one server.

use std::time::Duration;

use bellwether::store::Renew;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{Lock, RedisLock, Released};
use bellwether_testkit::servers::{RedisServer, Reply, free_port};
use bellwether_testkit::wait::within;

use crate::world::{LONG, attempt, busy, claim, free, key, options, options_of, take};

async fn lock(server: &RedisServer) -> RedisLock {
    RedisLock::connect(options(server)).await.expect("a lock")
}

fn name(number: u64) -> String {
    format!("bw:test:{{{}}}:lock", key(number).digest())
}

#[tokio::test]
async fn a_value_that_was_replaced_by_hand_stays_and_is_not_released() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let ours = claim(1);
    take(&lock, &ours, LONG).await;
    server.command(&["SET", &name(1), "another holder"]);
    assert_eq!(lock.release(ours.clone()).await.expect("an answer"), Released::NotHeld);
    assert_eq!(lock.renew(&ours, LONG).await.expect("an answer"), Renew::Lost);
    assert_eq!(server.command(&["GET", &name(1)]), Reply::Text("another holder".into()));
}

#[tokio::test]
async fn what_others_have_put_under_our_name_keeps_it_locked_until_they_remove_it() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    // Sixteen bytes are as long as a token.
    for foreign in ["x", "sixteen bytes !!", "thirty-two bytes of another form"] {
        server.command(&["SET", &name(1), foreign]);
        assert_eq!(busy(&lock, &claim(1)).await.remaining, None, "{foreign}");
        server.command(&["DEL", &name(1)]);
    }
    server.command(&["RPUSH", &name(1), "of another type"]);
    assert_eq!(busy(&lock, &claim(1)).await.holder, None);
    server.command(&["DEL", &name(1)]);
    let ours = claim(1);
    take(&lock, &ours, LONG).await;
    free(&lock, &ours).await;
}

#[tokio::test]
async fn no_lease_is_so_short_or_so_long_that_it_never_ends_or_is_refused() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    for lease in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
        take(&lock, &claim(1), lease).await;
        let is_gone = || server.command(&["EXISTS", &name(1)]) == Reply::Integer(0);
        within(LONG, is_gone).await;
    }
    let ours = claim(1);
    take(&lock, &ours, Duration::MAX).await;
    let Reply::Integer(left) = server.command(&["PTTL", &name(1)]) else { panic!("no life") };
    assert!(left > 0, "{left}");
    free(&lock, &ours).await;
}

#[tokio::test]
async fn namespaces_do_not_exclude_each_other() {
    let server = RedisServer::start();
    let shop = RedisClientOptions::new(&server.url(), "shop").expect("options");
    let [shop, other] = [RedisLock::connect_lazily(shop).expect("options"), lock(&server).await];
    take(&shop, &claim(1), LONG).await;
    take(&other, &claim(1), LONG).await;
    busy(&shop, &claim(1)).await;
}

#[tokio::test]
async fn names_reveal_nothing_of_a_key_but_its_digest() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    let secret = bellwether::Key::of("patient").with("Jane Doe").with("{}\r\n");
    take(&lock, &bellwether::store::Claim::new(secret.clone()), LONG).await;
    let Reply::Array(names) = server.command(&["KEYS", "*:lock"]) else { panic!("no names") };
    let expected = format!("bw:test:{{{}}}:lock", secret.digest());
    assert_eq!(names, [Reply::Text(expected)]);
}

#[tokio::test]
async fn fences_grow_over_a_flush_and_a_clock_that_was_put_back() {
    let server = RedisServer::start();
    let lock = lock(&server).await;
    // They grow per key.
    let mut last = [0; 2];
    let mut grows = |key: usize, grant: bellwether_lock::Grant| {
        let fence = grant.fence.expect("a fence");
        assert!(fence > last[key], "{fence} after {}", last[key]);
        last[key] = fence;
    };
    for number in 0..20 {
        let ours = claim(number % 2);
        grows(usize::from(number % 2 == 1), take(&lock, &ours, LONG).await);
        free(&lock, &ours).await;
    }
    server.command(&["FLUSHALL"]);
    grows(1, take(&lock, &claim(1), LONG).await);
    // A server whose clock was a year ahead has left data, which a server with the right clock
    // reads.
    let ahead = 1_u64 << 51;
    let Reply::Array(marks) = server.command(&["KEYS", "bw:test:fence:*"]) else {
        panic!("no names")
    };
    assert_eq!(marks.len(), 1, "{marks:?}");
    let bytes = String::from_utf8(ahead.to_be_bytes().to_vec()).expect("zeros and an eight");
    server.command(&["SET", &marks[0].clone().text(), &bytes]);
    server.command(&["DEL", &name(1)]);
    for _ in 2..5 {
        let ours = claim(1);
        grows(1, take(&lock, &ours, LONG).await);
        free(&lock, &ours).await;
    }
    assert_eq!(last[1], ahead + 3);
}

#[tokio::test]
async fn an_error_names_the_key_by_its_digest_and_nothing_secret() {
    let port = free_port();
    let lock =
        RedisLock::connect_lazily(options_of(&format!("redis://u:hunter2@127.0.0.1:{port}")))
            .expect("options");
    let secret = bellwether::Key::of("patient").with("Jane Doe");
    let claim = bellwether::store::Claim::new(secret.clone());
    let error = attempt(&lock, &claim, LONG).await.expect_err("no server is there").to_string();
    assert!(error.contains(&secret.to_string()), "{error}");
    let shown = format!("{error} {lock:?}");
    assert!(!shown.contains("Jane") && !shown.contains("hunter2"), "{shown}");
}
