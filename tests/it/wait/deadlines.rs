//! A deadline bounds everything that its caller waits for.

use std::time::Duration;

use bellwether::codec::{Cacheability, Codec, Json};
use bellwether::service::{KeyRequest, ReadThrough, ReadThroughLayerBuilder};
use bellwether::store::Store;
use bellwether::{
    CacheErrorKind, CacheStatus, Lifetimes, MemoryStore, ReadThroughLayer, StaleReason, Wait,
    WhenAbandoned,
};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{
    Answered, JSON, MINUTE, NO_TIME, SECOND, answers, idle, key, kind_of, lease, put, put_for,
    tasks,
};
use bellwether_testkit::loaders::Loader;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use crate::support::store::{Operation, local, remote};

type AskOf = fn(&u64) -> KeyRequest;
type Asking<C = Json> = ReadThrough<Loader, AskOf, C>;

const MISSED: CacheErrorKind = CacheErrorKind::DeadlineExceeded;

/// Requests for these items have no key.
const KEYLESS: u64 = 900;

/// A request for an item that needs its answer within so many milliseconds.
fn within(millis: u64, item: u64) -> u64 {
    millis * 1_000 + item
}

/// A layer whose requests say themselves by when they need their answer, or do not.
fn layer(store: impl Store) -> ReadThroughLayerBuilder<AskOf> {
    let ask_of: AskOf = |request| {
        let millis = request / 1_000;
        let item = request % 1_000;
        let ask = if item < KEYLESS { KeyRequest::of(key(item)) } else { KeyRequest::none() };
        match millis {
            0 => ask,
            _ => ask.deadline(Instant::now() + Duration::from_millis(millis)),
        }
    };
    let layer = ReadThroughLayer::builder(store, ask_of).ttl(MINUTE).jitter(0.0);
    layer.failure_windows(NO_TIME, NO_TIME)
}

fn asking(store: impl Store, loader: &Loader) -> Asking {
    layer(store).build().unwrap().layer(loader.clone())
}

fn ask<C>(asking: &Asking<C>, request: u64) -> JoinHandle<Answered>
where
    C: Codec<usize>,
{
    tokio::spawn(asking.clone().call(request).with_status())
}

/// A request ends with that error by its deadline, and not much earlier.
async fn misses_its_deadline(asked: JoinHandle<Answered>, began: Instant, millis: u64) {
    let (answer, status) = asked.await.expect("no panic");
    let took = began.elapsed();
    assert_eq!((kind_of(&answer), status), (MISSED, CacheStatus::Failed));
    let by = Duration::from_millis(millis);
    let [least, most] = [2, 10].map(Duration::from_millis);
    let earliest = by - (by / 10).clamp(least, most).min(by / 2);
    assert!(took <= by && took >= earliest, "{took:?} of {by:?}");
}

const DEADLINES: [u64; 4] = [10, 50, 100, 2_000];

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_a_lookup() {
    for millis in DEADLINES {
        let store = remote(&MemoryStore::new(10));
        let looking = store.on(Operation::Lookup).nth(1).hold();
        let asking = asking(store.clone(), &Loader::new());
        let began = Instant::now();
        let asked = ask(&asking, within(millis, 1));
        looking.reached().await;
        misses_its_deadline(asked, began, millis).await;
        assert_eq!(asking.in_flight(), 0, "its place is free");
        assert_eq!(answers(vec![ask(&asking, 1)]).await, [1]);
    }
}

/// The store has to notice that it does not answer, however short the deadlines of its callers are.
#[tokio::test(start_paused = true)]
async fn a_lookup_that_has_begun_is_finished_after_the_deadline_of_its_caller() {
    let store = remote(&MemoryStore::new(10));
    let looking = store.on(Operation::Lookup).nth(1).hold();
    let asking = asking(store, &Loader::new());
    kind_of(&ask(&asking, within(50, 1)).await.unwrap().0);
    sleep(SECOND).await;
    assert_eq!(tasks(), 1);
    looking.open();
    idle().await;
    assert_eq!((asking.in_flight(), tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_the_request_for_a_lease() {
    for millis in DEADLINES {
        let store = local(&MemoryStore::new(10));
        let acquiring = store.on(Operation::Acquire).nth(1).hold();
        let asking = asking(store.clone(), &Loader::new());
        let began = Instant::now();
        let asked = ask(&asking, within(millis, 1));
        acquiring.reached().await;
        let patient = ask(&asking, 1);
        misses_its_deadline(asked, began, millis).await;
        acquiring.open();
        assert_eq!(answers(vec![patient]).await, [1], "its request is left to the waiters");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_the_wait_of_a_caller_for_the_load_that_it_leads() {
    for millis in DEADLINES {
        let loader = Loader::taking(SECOND * 5);
        let asking = asking(MemoryStore::new(10), &loader);
        let began = Instant::now();
        misses_its_deadline(ask(&asking, within(millis, 1)), began, millis).await;
        assert_eq!(loader.running(), 1, "the load goes on");
        assert_eq!(answers(vec![ask(&asking, 1)]).await, [1]);
        assert_eq!(loader.loads(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_for_others_when_the_deadline_of_its_leader_comes() {
    for when in [WhenAbandoned::Finish, WhenAbandoned::Cancel] {
        let loader = Loader::taking(SECOND * 5);
        let asking =
            layer(MemoryStore::new(10)).when_abandoned(when).build().unwrap().layer(loader.clone());
        let leads = ask(&asking, within(100, 1));
        let began = Instant::now();
        loader.has_begun(1).await;
        let others = (0..9).map(|_| ask(&asking, 1)).collect();
        misses_its_deadline(leads, began, 100).await;
        assert_eq!(answers(others).await, [1; 9]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_only_its_leader_waits_for_ends_with_its_deadline_if_the_policy_says_so() {
    let loader = Loader::gated();
    let layer = layer(MemoryStore::new(10)).when_abandoned(WhenAbandoned::Cancel).build().unwrap();
    let asking = layer.layer(loader.clone());
    let asked = ask(&asking, within(100, 1));
    let began = Instant::now();
    misses_its_deadline(asked, began, 100).await;
    idle().await;
    assert_eq!((loader.dropped(), asking.in_flight(), tasks()), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_at_the_deadline_of_a_leader() {
    for place in [local, remote] {
        let memory = MemoryStore::new(10);
        let windows = Lifetimes::fresh_for(SECOND).stale_if_error(MINUTE);
        put_for(&memory, 1, "42", JSON, windows).await;
        sleep(SECOND * 2).await;
        let asking = asking(place(&memory), &Loader::taking(SECOND * 5));
        let began = Instant::now();
        let (answer, status) = ask(&asking, within(100, 1)).await.unwrap();
        assert_eq!(answer.unwrap(), 42);
        assert!(
            matches!(status, CacheStatus::Stale { why: StaleReason::WaitRanOut, .. }),
            "{status:?}"
        );
        assert!(began.elapsed() <= SECOND / 10, "{:?}", began.elapsed());
    }
}

/// It waits for another process. The waiters of its flight have no request that was lent to it.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_deadline_comes_leaves_its_request_to_the_waiters() {
    let memory = MemoryStore::new(10);
    let held = lease(&memory, 1, MINUTE).await;
    let asking = asking(memory.clone(), &Loader::new());
    let began = Instant::now();
    let opener = ask(&asking, within(100, 1));
    idle().await;
    let follower = ask(&asking, 1);
    misses_its_deadline(opener, began, 100).await;
    memory.abandon(held.claim).await.expect("an answer");
    assert_eq!(answers(vec![follower]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_a_load_after_a_wait_that_ended() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let wait = Wait::at_most(SECOND).then_load();
    let asking = layer(memory).wait(wait).build().unwrap().layer(Loader::taking(SECOND * 5));
    let began = Instant::now();
    misses_its_deadline(ask(&asking, within(2_000, 1)), began, 2_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_a_load_past_the_cache() {
    let loader = Loader::gated();
    let layer =
        layer(MemoryStore::new(10)).classify(|_: &usize| Cacheability::PrivateKey).build().unwrap();
    let asking = layer.layer(loader.clone());
    // After two private answers in a row, callers bypass the cache.
    loader.let_go(2);
    answers(vec![ask(&asking, 1)]).await;
    answers(vec![ask(&asking, 1)]).await;
    for item in [1, KEYLESS] {
        let asked = ask(&asking, within(100, item));
        let began = Instant::now();
        misses_its_deadline(asked, began, 100).await;
        assert_eq!(loader.running(), 0, "no other caller may have its answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_the_wait_of_a_caller_that_fails_fast() {
    let store = local(&MemoryStore::new(10));
    let acquiring = store.on(Operation::Acquire).nth(1).hold();
    let loader = Loader::taking(SECOND * 5);
    let asking = layer(store).wait(Wait::fail_fast()).build().unwrap().layer(loader);
    let asked = ask(&asking, within(100, 1));
    let began = Instant::now();
    misses_its_deadline(asked, began, 100).await;
    acquiring.open();
    sleep(MINUTE).await;
    let asked = ask(&asking, within(100, 2));
    let began = Instant::now();
    misses_its_deadline(asked, began, 100).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_starts_nothing_but_a_hit_is_given() {
    for place in [local, remote] {
        let memory = MemoryStore::new(10);
        let loader = Loader::new();
        put(&memory, 2, "42", JSON).await;
        let store = place(&memory);
        let ask_of: AskOf = |item| match *item {
            KEYLESS => KeyRequest::none().deadline(Instant::now()),
            item => KeyRequest::of(key(item)).deadline(Instant::now()),
        };
        let asking =
            ReadThroughLayer::builder(store.clone(), ask_of).build().unwrap().layer(loader.clone());
        for item in [1, KEYLESS] {
            misses_its_deadline(ask(&asking, item), Instant::now(), 0).await;
        }
        assert_eq!((loader.loads(), store.total_calls(), tasks()), (0, 0, 0));
        let (hit, _) = ask(&asking, 2).await.unwrap();
        if matches!(store.peek(&key(2)), bellwether::store::Peek::Found(_)) {
            assert_eq!(hit.unwrap(), 42, "it is at hand");
        } else {
            assert_eq!(kind_of(&hit), MISSED);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_until_its_deadline_for_a_load_of_another_process() {
    let memory = MemoryStore::new(10);
    let asking = asking(remote(&memory), &Loader::taking(SECOND * 5));
    answers(vec![ask(&asking, 1)]).await;
    let held = lease(&memory, 2, MINUTE).await;
    let _waits = ask(&asking, 2);
    idle().await;
    let asked = ask(&asking, within(2_000, 2));
    sleep(SECOND).await;
    bellwether_testkit::caches::commit(&memory, held, "42").await;
    assert_eq!(answers(vec![asked]).await, [42]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_ages_away_is_none() {
    let loader = Loader::taking(SECOND * 5);
    let asking = asking(MemoryStore::new(10), &loader);
    let ages = 1_000 * 60 * 60 * 24 * 365 * 1_000;
    assert_eq!(answers(vec![ask(&asking, within(ages, 1))]).await, [1]);
}
