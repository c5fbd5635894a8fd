//! No more loads are under way than may be, and what waits fails for no reason of the queue.

use std::time::Duration;

use bellwether::stats::CurrentStats;
use bellwether::{CacheErrorKind, CacheStatus, Lifetimes, Loads, MemoryStore, StaleReason, Wait};
use bellwether_test::faulty::Operation;
use bellwether_testkit::caches::{
    JSON, MINUTE, NO_TIME, SECOND, answer, answers, ask, burst, idle, is_leased, kind_of, layer,
    lease, put_for, remembering_layer, settled, tasks,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::stores;
use crate::support::store::{local, remote};

/// A source that serves 200 loads a second, 50 at a time.
const MOST: usize = 50;
const TAKES: Duration = Duration::from_millis(250);
const KEYS: u64 = 10_000;

#[tokio::test(start_paused = true)]
async fn a_cold_start_fills_the_source_and_fails_no_caller() {
    for store in stores() {
        let loader = Loader::taking(TAKES);
        let layer = remembering_layer(store).max_loads(MOST).wait(Wait::at_most(MINUTE));
        let cached = layer.build().unwrap().layer(loader.clone());
        let began = Instant::now();
        answers((0..KEYS).map(|item| ask(&cached, item)).collect()).await;
        let ideal = Duration::from_secs(KEYS / 200);
        assert!(began.elapsed() <= ideal.mul_f64(1.1), "{:?}", began.elapsed());
        assert_eq!((loader.loads() as u64, loader.most_at_once()), (KEYS, MOST));
        idle().await;
        let stats = cached.stats();
        assert_eq!((stats.requests.failed(), stats.loads.total()), (0, KEYS));
        assert_eq!(stats.current, CurrentStats::default(), "no key is in cooldown");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hit_waits_for_no_load() {
    let loader = Loader::taking(TAKES);
    let store = remote(&MemoryStore::new(100));
    let cached = layer(store).max_loads(1).build().unwrap().layer(loader.clone());
    let first = answer(&cached, 0).await;
    let _fill: Vec<_> = (1..50).map(|item| ask(&cached, item)).collect();
    idle().await;
    let began = Instant::now();
    assert_eq!((answer(&cached, 0).await, began.elapsed()), (first, NO_TIME));
}

#[tokio::test(start_paused = true)]
async fn the_time_in_the_queue_is_no_time_of_the_load() {
    let loader = Loader::taking(SECOND);
    let layer = layer(MemoryStore::new(100)).max_loads(1).load_timeout(SECOND * 2);
    let cached = layer.wait(Wait::at_most(MINUTE)).build().unwrap().layer(loader.clone());
    answers((0..30).map(|item| ask(&cached, item)).collect()).await;
    assert_eq!(loader.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_the_queue_has_no_lease_and_costs_no_request() {
    let memory = MemoryStore::new(100);
    let store = remote(&memory);
    let loader = Loader::gated();
    let cached = layer(store.clone()).max_loads(1).build().unwrap().layer(loader.clone());
    let first = ask(&cached, 1);
    loader.has_begun(1).await;
    let before = store.calls(Operation::Acquire);
    let queued = ask(&cached, 2);
    sleep(SECOND * 10).await;
    assert!(!is_leased(&memory, 2).await);
    assert_eq!(store.calls(Operation::Acquire), before);
    assert_eq!(store.calls(Operation::Lookup), 2, "one by each caller");
    loader.let_go(2);
    answers(vec![first, queued]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shared_bound_holds_for_all_its_caches_together() {
    let loader = Loader::taking(SECOND);
    let database = Loads::at_most(3);
    let store = MemoryStore::new(100);
    let caches = [0, 10].map(|first| {
        let layer = layer(store.clone()).max_loads(&database).build().unwrap();
        (first, layer.layer(loader.clone()))
    });
    let asked = caches.iter().flat_map(|(first, cached)| {
        (*first..first + 6).map(|item| ask(cached, item)).collect::<Vec<_>>()
    });
    let began = Instant::now();
    answers(asked.collect()).await;
    assert_eq!((began.elapsed(), loader.most_at_once()), (SECOND * 4, 3));
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_counts_as_a_load() {
    use bellwether::service::{KeyRequest, ReadThrough};
    use bellwether::{Key, ReadThroughLayer};
    use tower::Service;
    let loader = Loader::taking(SECOND);
    let forced: fn(&u64) -> KeyRequest =
        |item| KeyRequest::of(Key::of("item").with(*item)).force_refresh();
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), forced).ttl(MINUTE).max_loads(1);
    let mut cached: ReadThrough<_, _> = layer.build().unwrap().layer(loader.clone());
    let asked: Vec<_> = (0..3).map(|item| tokio::spawn(cached.call(item).with_status())).collect();
    answers(asked).await;
    assert_eq!(loader.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_for_another_process_a_key_takes_no_permit() {
    let memory = MemoryStore::new(100);
    let _held = lease(&memory, 1, MINUTE).await;
    let cached = layer(remote(&memory)).max_loads(1).build().unwrap().layer(Loader::new());
    let _waits = ask(&cached, 1);
    idle().await;
    assert_eq!(answers(vec![ask(&cached, 2)]).await, [1]);
}

/// The permit of a load is free for the next one while the answer is stored.
#[tokio::test(start_paused = true)]
async fn a_commit_takes_no_permit() {
    let store = local(&MemoryStore::new(100));
    let commit = store.on(Operation::Commit).hold();
    let loader = Loader::new();
    let cached = layer(store).max_loads(1).build().unwrap().layer(loader.clone());
    let stores = ask(&cached, 1);
    loader.has_begun(1).await;
    let next = ask(&cached, 2);
    loader.has_begun(2).await;
    commit.open();
    answers(vec![stores, next]).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_wait_ends_in_the_queue_is_told_so_or_gets_a_stale_answer() {
    let memory = MemoryStore::new(100);
    let stale = Lifetimes::fresh_for(SECOND).stale_if_error(MINUTE);
    put_for(&memory, 2, "42", JSON, stale).await;
    sleep(SECOND * 2).await;
    let loader = Loader::gated();
    let layer = layer(remote(&memory)).max_loads(1).wait(Wait::at_most(SECOND));
    let cached = layer.build().unwrap().layer(loader.clone());
    let _fills = ask(&cached, 1);
    loader.has_begun(1).await;
    let began = Instant::now();
    for (answer, status) in settled(burst(&cached, 2, 10)).await {
        assert_eq!(answer.unwrap(), 42);
        assert!(matches!(status, CacheStatus::Stale { why: StaleReason::WaitRanOut, .. }));
    }
    for (answer, _) in settled(burst(&cached, 3, 10)).await {
        assert_eq!(kind_of(&answer), CacheErrorKind::Full);
    }
    assert_eq!((began.elapsed(), loader.loads()), (SECOND * 2, 1));
    idle().await;
    assert_eq!(cached.stats().current.queued_loads, 0);
}

/// One that came while another one looked up, and so has not looked up itself.
#[tokio::test(start_paused = true)]
async fn in_the_queue_a_burst_gets_its_stale_answers_at_once() {
    let memory = MemoryStore::new(100);
    let stale = Lifetimes::fresh_for(SECOND).stale_while_revalidate(MINUTE);
    put_for(&memory, 2, "42", JSON, stale).await;
    sleep(SECOND * 2).await;
    let loader = Loader::gated();
    let cached = layer(remote(&memory)).max_loads(1).build().unwrap().layer(loader.clone());
    let fills = ask(&cached, 1);
    loader.has_begun(1).await;
    let began = Instant::now();
    assert_eq!(answers(burst(&cached, 2, 10)).await, [42; 10]);
    assert_eq!(began.elapsed(), NO_TIME);
    loader.let_go(2);
    answers(vec![fills]).await;
    idle().await;
    assert_eq!(answer(&cached, 2).await, 2, "it was refreshed");
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_a_queued_key_gets_what_another_process_has_stored() {
    let memory = MemoryStore::new(100);
    let loader = Loader::gated();
    let cached = layer(remote(&memory)).max_loads(1).build().unwrap().layer(loader.clone());
    let _fills = ask(&cached, 1);
    loader.has_begun(1).await;
    let _queued = ask(&cached, 2);
    idle().await;
    put_for(&memory, 2, "42", JSON, Lifetimes::fresh_for(MINUTE)).await;
    assert_eq!(answer(&cached, 2).await, 42);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_all_callers_have_left_leaves_the_queue_and_gives_its_place_up() {
    let loader = Loader::gated();
    let cached = layer(MemoryStore::new(100)).max_loads(1).build().unwrap().layer(loader.clone());
    let first = ask(&cached, 1);
    loader.has_begun(1).await;
    let leaves = ask(&cached, 2);
    let stays = ask(&cached, 3);
    idle().await;
    leaves.abort();
    // At the moment when its turn comes.
    loader.let_go(2);
    assert_eq!(answers(vec![first, stays]).await, [1, 2]);
    idle().await;
    assert_eq!((cached.in_flight(), tasks(), loader.loads()), (0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_handle_shows_its_bound() {
    assert_eq!(format!("{:?}", Loads::at_most(5)), "Loads { most: 5, taken: 0, queued: 0 }");
}

#[tokio::test(start_paused = true)]
async fn a_lease_holds_for_three_times_as_long_as_a_process_stands_still() {
    let layer = layer(remote(&MemoryStore::new(10))).build().unwrap();
    for (millis, renewed) in [(900, 0), (1_100, 1)] {
        let cached = layer.layer(Loader::taking(Duration::from_millis(millis)));
        answers(vec![ask(&cached, millis)]).await;
        assert_eq!(cached.stats().leases.renewed, renewed, "a load of {millis} ms");
    }
}
