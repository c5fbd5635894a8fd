//! What processes that share a Redis read and load for the variants of a URI.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Wait;
use bellwether_redis::RedisOptions;
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::{PATIENCE, until};
use tokio::join;
use tokio::sync::Semaphore;

use crate::expired_variants::{ENGLISH, GERMAN, VARY, with_variants};
use crate::origin::{Origin, ask, cached, get, is_hit, page, patient_redis, plain, says, text};

fn patient(url: &str) -> RedisOptions {
    RedisOptions::new(url, "test").unwrap().timeout(Duration::from_secs(30))
}

/// How many times entries or tags were read.
fn reads(server: &RedisServer) -> u64 {
    let calls = server.info("commandstats", "cmdstat_mget");
    let calls = calls.as_deref().and_then(|calls| calls.strip_prefix("calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test]
async fn the_first_hit_of_a_variant_in_a_process_is_two_round_trips() {
    let (server, store) = patient_redis().await;
    let origin = Origin::echoing();
    with_variants(&plain(store).build().unwrap(), &origin, &[]).await;
    for method in ["GET", "HEAD"] {
        let store = patient(&server.url()).connect().await.unwrap();
        let late = cached(&plain(store).build().unwrap(), &origin);
        let before = reads(&server);
        assert!(is_hit(&ask(&late, method, "http://shop/item", &[VARY, ENGLISH]).await));
        assert_eq!(reads(&server) - before, 2, "{method}");
    }
}

#[tokio::test]
async fn a_process_that_waits_for_a_variant_is_told_it() {
    let (server, store) = patient_redis().await;
    let may_answer = Arc::new(Semaphore::new(1));
    let gate = Arc::clone(&may_answer);
    let origin = Origin::new(move |_, nth| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            let fields = [("cache-control", "max-age=60"), ("vary", "accept-language")];
            Ok(page(&fields, nth.to_string()))
        }
    });
    let cache = cached(&plain(store).build().unwrap(), &origin);
    get(&cache, &[GERMAN]).await;
    let store = FaultyStore::new(patient(&server.url()).connect().await.unwrap());
    // It asks again for a message only.
    let layer = plain(store.clone()).wait(Wait::tries(2, PATIENCE)).build().unwrap();
    let late = async {
        until("the load", || origin.asked() == 2).await;
        get(&cached(&layer, &origin), &[ENGLISH]).await
    };
    let waits = async {
        until("the wait", || layer.stats().leases.busy > 0).await;
        may_answer.add_permits(1);
    };
    let (_, late, ()) = join!(get(&cache, &[ENGLISH]), late, waits);
    assert!(says(&late, "collapsed"));
    assert_eq!(text(late).await, "1");
    assert_eq!(store.calls(Operation::Acquire), 1, "the message has the entry");
}
