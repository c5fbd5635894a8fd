//! Many callers at once.

use std::collections::HashSet;
use std::time::Duration;

use bellwether::{MemoryStore, Store};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::origin::{Origin, cached, get, page, plain, redis, text};
use crate::support::redis_server::Reply;

const LOAD: Duration = Duration::from_millis(100);

fn slow(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(async move |_, nth| {
        sleep(LOAD).await;
        Ok(page(fields, format!("secret {nth}")))
    })
}

async fn burst(store: impl Store, origin: &Origin) -> Vec<String> {
    let cache = cached(&plain(store), origin);
    join_all((0..100).map(async |_| text(get(&cache, &[]).await).await)).await
}

async fn one_load(store: impl Store) {
    let origin = slow(&[("cache-control", "max-age=60")]);
    let answers = burst(store, &origin).await;
    assert_eq!(answers, vec!["secret 0"; 100]);
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cold_burst_is_one_load() {
    one_load(MemoryStore::new(1_000)).await;
}

#[tokio::test]
async fn a_cold_burst_over_redis_is_one_load() {
    let (_server, store) = redis().await;
    one_load(store).await;
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_private_answer_do_not_queue() {
    let origin = slow(&[("cache-control", "private, max-age=60")]);
    let began = Instant::now();
    let answers = burst(MemoryStore::new(1_000), &origin).await;
    let distinct: HashSet<_> = answers.iter().collect();
    assert_eq!(distinct.len(), 100, "each has its own");
    // One finds out, and then all the others at once.
    assert!(began.elapsed() < LOAD * 3, "{:?}", began.elapsed());
}

#[tokio::test]
async fn nothing_private_is_ever_in_the_store() {
    let (server, store) = redis().await;
    for fields in [
        &[("cache-control", "private, max-age=60")][..],
        &[("cache-control", "max-age=60"), ("set-cookie", "a=b")],
        &[("cache-control", "no-store")],
        &[("cache-control", "max-age=60"), ("vary", "cookie")],
        &[("cache-control", "max-age=60"), ("vary", "*")],
    ] {
        let origin = Origin::new(async move |_, _| Ok(page(fields, "secret")));
        let cache = cached(&plain(store.clone()), &origin);
        for _ in 0..3 {
            assert_eq!(text(get(&cache, &[]).await).await, "secret");
        }
        assert_eq!(origin.asked(), 3, "{fields:?}");
    }
    let Reply::Array(names) = server.command(&["KEYS", "*"]) else { panic!("no list") };
    assert!(!names.is_empty(), "it is known of them that they are not kept");
    for name in names {
        let dump = format!("{:?}", server.try_command(&["GET", &name.text()]));
        assert!(!dump.contains("secret"), "{dump}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_credentials_does_not_open_the_gate_for_those_who_have_not() {
    let origin = Origin::new(async |_, nth| {
        sleep(LOAD).await;
        Ok(page(&[("cache-control", "max-age=60")], format!("answer {nth}")))
    });
    let cache = cached(&plain(MemoryStore::new(1_000)), &origin);
    let own = get(&cache, &[("authorization", "Bearer x")]).await;
    assert_eq!(text(own).await, "answer 0");
    let answers = join_all((0..100).map(async |_| text(get(&cache, &[]).await).await)).await;
    assert_eq!(answers, vec!["answer 1"; 100]);
}
