//! How often a Redis that is down is asked, and connected to.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bellwether::store::StoreErrorKind;
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::{Site, TIMEOUT, kind, lease, look};
use crate::catalog::key;

/// More failures than any test causes.
const NEVER: u32 = 1_000_000;

/// How long each thousand callers go on asking.
const RUSH: Duration = Duration::from_secs(2);

/// A thousand callers that ask again and again. Gives how many requests were not refused at once.
async fn rush(store: &RedisStore) -> usize {
    let began = Instant::now();
    let callers = (0..1000).map(async |caller| {
        let mut tried = 0;
        while began.elapsed() < RUSH {
            let ended = if caller % 2 == 0 { look(store).await } else { lease(store).await };
            tried += usize::from(kind(ended) != Some(StoreErrorKind::Down));
            sleep(Duration::from_millis(20)).await;
        }
        tried
    });
    join_all(callers).await.into_iter().sum()
}

#[tokio::test]
async fn a_thousand_callers_of_a_redis_that_refuses_cause_a_few_attempts_to_connect() {
    let site = Site::start().await;
    site.proxy.refuse();
    let store = site.options().connect_lazily().expect("options");
    rush(&store).await;
    // One of each connection, and one of the task that gives leases up; then one per probe, and
    // those are 0.2 s apart at least.
    let connects = store.stats().connects;
    assert!((2..=14).contains(&connects), "{connects} attempts");
}

#[tokio::test]
async fn attempts_to_connect_are_apart_even_if_every_caller_is_let_through() {
    let site = Site::start().await;
    site.proxy.refuse();
    let store = site.options().down_after(NEVER).connect_lazily().expect("options");
    rush(&store).await;
    // Pauses of 25, 50, and then 62.5 ms at least.
    let connects = store.stats().connects;
    assert!((2..=36).contains(&connects), "{connects} attempts");
}

#[tokio::test]
async fn attempts_to_connect_to_a_redis_that_is_silent_are_apart() {
    let site = Site::start().await;
    site.proxy.blackhole();
    let store = site.options().down_after(NEVER).connect_lazily().expect("options");
    rush(&store).await;
    // One attempt goes on, and beside it one is begun every half second.
    let most = 1 + (RUSH + TIMEOUT).as_millis().div_ceil(500);
    let connects = u128::from(store.stats().connects);
    assert!((2..=most).contains(&connects), "{connects} attempts, more than {most}");
}

/// Each leaves long before the server would count as silent for its own request.
#[tokio::test]
async fn callers_that_all_leave_early_find_a_dead_connection_together() {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    let before = store.stats().connects;
    site.proxy.blackhole();
    let replaced = async {
        while store.stats().connects == before {
            assert!(timeout(TIMEOUT / 10, look(&store)).await.is_err(), "an answer");
        }
    };
    timeout(40 * TIMEOUT, replaced).await.expect("another attempt to connect");
}

#[tokio::test]
async fn a_redis_that_has_become_a_replica_is_reconnected_once_a_second() {
    let site = Site::start().await;
    let store = site.options().connect().await.expect("a store");
    site.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let began = Instant::now();
    let before = store.stats().connects;
    for _ in 0..500 {
        assert_eq!(kind(lease(&store).await), Some(StoreErrorKind::Refused));
        look(&store).await.expect("an answer");
    }
    let connects = store.stats().connects - before;
    let seconds = began.elapsed().as_secs();
    assert!((2..=2 * (seconds + 1)).contains(&connects), "{connects} attempts in {seconds} s");
    assert!(!store.is_down());
}

/// Greets, and then says nothing more.
async fn greet(mut client: TcpStream) {
    let mut bytes = vec![0; 4096];
    while let Ok(length @ 1..) = client.read(&mut bytes).await {
        let asked = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let hello = "%1\r\n+server\r\n+redis\r\n".repeat(asked.matches("HELLO").count());
        let named = "+OK\r\n".repeat(asked.matches("SETINFO").count());
        let _ = client.write_all((hello + &named).as_bytes()).await;
    }
}

#[tokio::test]
async fn a_connection_that_stalls_while_it_is_made_is_given_up_for_another_one() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let greeted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&greeted);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(greet(client));
        }
    });
    let options = RedisOptions::new(&url, "test").map(|options| options.down_after(NEVER));
    let store = options.expect("options").connect_lazily().expect("options");
    let began = Instant::now();
    while greeted.load(Ordering::SeqCst) < 3 {
        assert!(began.elapsed() < Duration::from_secs(10), "it waits for one that stalls");
        let _ = store.invalidate(key(1)).await;
    }
}
