//! How many callers may wait, and how long: bounds and deadlines.

use std::time::Duration;

use bellwether::service::{KeyRequest, ReadThrough};
use bellwether::{
    CacheErrorKind, CacheStatus, Lifetimes, MemoryStore, ReadThroughLayer, StaleReason, Wait,
};
use bellwether_testkit::caches::{
    Answered, JSON, MINUTE, NO_TIME, SECOND, answers, ask, burst, idle, key, kind_of, layer, lease,
    put_for, settled,
};
use bellwether_testkit::loaders::Loader;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use crate::support::store::local;

#[tokio::test(start_paused = true)]
async fn one_caller_more_than_may_wait_is_shed_and_the_others_are_served() {
    let loader = Loader::gated();
    let cached = layer(MemoryStore::new(10)).max_waiters(3).build().unwrap().layer(loader.clone());
    let within = burst(&cached, 1, 3);
    loader.has_begun(1).await;
    let (shed, _) = ask(&cached, 1).await.unwrap();
    assert_eq!(kind_of(&shed), CacheErrorKind::Full);
    let message = shed.unwrap_err().to_string();
    assert!(message.contains("item#") && message.contains("3 callers wait"), "{message}");
    loader.let_go(1);
    assert_eq!(answers(within).await, [1; 3]);
    cached.handle().invalidate(&key(1)).await.unwrap();
    loader.let_go(1);
    assert_eq!(answers(burst(&cached, 1, 3)).await, [2; 3], "permits are free again");
}

#[tokio::test(start_paused = true)]
async fn one_key_more_than_may_be_loaded_is_shed_and_the_others_are_served() {
    let loader = Loader::gated();
    let cached = layer(MemoryStore::new(10)).max_flights(2).build().unwrap().layer(loader.clone());
    let within = vec![ask(&cached, 1), ask(&cached, 2), ask(&cached, 2)];
    loader.has_begun(2).await;
    let (shed, _) = ask(&cached, 3).await.unwrap();
    assert_eq!(kind_of(&shed), CacheErrorKind::Full);
    let message = shed.unwrap_err().to_string();
    assert!(message.contains("item#") && message.contains("2 keys are being"), "{message}");
    loader.let_go(3);
    answers(within).await;
    idle().await;
    assert_eq!(answers(vec![ask(&cached, 3)]).await, [3], "there are permits again");
}

type Asking = ReadThrough<Loader, fn(&u64) -> KeyRequest>;

const DEADLINE: Duration = Duration::from_secs(2);

/// Requests for these items are in no hurry.
const UNHURRIED: u64 = 100;

/// Every other request needs its answer within two seconds.
fn in_a_hurry(memory: &MemoryStore, loader: &Loader) -> Asking {
    let ask_of: fn(&u64) -> KeyRequest = |item| match *item {
        UNHURRIED.. => KeyRequest::of(key(*item)),
        _ => KeyRequest::of(key(*item)).deadline(Instant::now() + DEADLINE),
    };
    let layer = ReadThroughLayer::builder(local(memory), ask_of).ttl(MINUTE);
    layer.wait(Wait::at_most(MINUTE)).build().unwrap().layer(loader.clone())
}

fn hurry(cached: &Asking, item: u64) -> JoinHandle<Answered> {
    tokio::spawn(cached.clone().call(item).with_status())
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_before_its_deadline() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let began = Instant::now();
    let (answer, _) = hurry(&in_a_hurry(&memory, &Loader::new()), 1).await.unwrap();
    assert_eq!(kind_of(&answer), CacheErrorKind::DeadlineExceeded);
    let early = DEADLINE.checked_sub(began.elapsed()).expect("it is too late");
    assert!(early > NO_TIME && early < SECOND / 10, "{early:?} before it");
}

#[tokio::test(start_paused = true)]
async fn a_load_of_ones_own_is_not_cut_short_by_a_deadline() {
    let loader = Loader::taking(SECOND * 5);
    let cached = in_a_hurry(&MemoryStore::new(10), &loader);
    let (answer, _) = hurry(&cached, 1).await.unwrap();
    assert_eq!(kind_of(&answer), CacheErrorKind::DeadlineExceeded);
    assert_eq!((loader.running(), loader.dropped()), (1, 0));
    sleep(SECOND * 5).await;
    assert_eq!(answers(vec![hurry(&cached, 1)]).await, [1], "it is stored for later callers");
}

/// A slow load of another key says nothing of this one.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_until_its_deadline_however_long_other_loads_took() {
    let memory = MemoryStore::new(10);
    put_for(&memory, 3, "42", JSON, Lifetimes::fresh_for(SECOND).stale_if_error(MINUTE)).await;
    let loader = Loader::gated();
    let cached = in_a_hurry(&memory, &loader);
    let slow = hurry(&cached, UNHURRIED);
    loader.has_begun(1).await;
    sleep(SECOND * 5).await;
    loader.let_go(1);
    answers(vec![slow]).await;
    let began = Instant::now();
    let leads = hurry(&cached, 2);
    loader.has_begun(2).await;
    let mut waits: Vec<_> = (0..19).map(|_| hurry(&cached, 2)).collect();
    waits.push(leads);
    sleep(SECOND / 20).await;
    loader.let_go(1);
    assert_eq!(answers(waits).await, [2; 20]);
    let leads = hurry(&cached, 3);
    loader.has_begun(3).await;
    let stale = vec![leads, hurry(&cached, 3)];
    for (answer, status) in settled(stale).await {
        assert_eq!(answer.unwrap(), 42);
        assert!(
            matches!(status, CacheStatus::Stale { why: StaleReason::WaitRanOut, .. }),
            "{status:?}"
        );
    }
    assert!(began.elapsed() > DEADLINE, "the stale answer comes at the deadline");
}
