//! The default wait for a load of others: as long as a load may take.

use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::{CacheErrorKind, CacheStatus, LoadLocation, MemoryStore, Wait};
use bellwether_testkit::caches::{
    MINUTE, SECOND, answers, ask, burst, cached, idle, is_leased, kind_of, layer, lease, settled,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::{error_after, waiting};
use crate::support::store::{Faulty, Operation, local, remote};

const MILLI: Duration = Duration::from_millis(1);
const PLACES: [fn(&MemoryStore) -> Faulty; 2] = [local, remote];

#[tokio::test(start_paused = true)]
async fn by_default_concurrent_callers_share_one_load_however_long_it_takes() {
    for (place, takes) in PLACES.into_iter().flat_map(|place| [7, 29].map(|s| (place, s))) {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(SECOND * takes);
        let fleet = [(); 2].map(|()| cached(place(&memory), &loader));
        let began = Instant::now();
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 5)).collect();
        assert_eq!(answers(asked).await, [1; 10]);
        assert_eq!(loader.loads(), 1);
        assert!(began.elapsed() < SECOND * takes + MILLI * 10, "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_limit_on_loads_prolongs_the_wait_for_them() {
    let memory = MemoryStore::new(10);
    let loader = Loader::taking(SECOND * 100);
    let fleet = [(); 2].map(|()| {
        let layer = layer(remote(&memory)).load_timeout(SECOND * 120).build().unwrap();
        layer.layer(loader.clone())
    });
    let asked = fleet.iter().flat_map(|process| burst(process, 1, 5)).collect();
    assert_eq!(answers(asked).await, [1; 10]);
    assert_eq!(loader.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_long_load_is_held_all_along() {
    let memory = MemoryStore::new(10);
    let loader = Loader::taking(SECOND * 29);
    let leads = ask(&cached(remote(&memory), &loader), 1);
    sleep(SECOND).await;
    for _ in 1..28 {
        assert!(is_leased(&memory, 1).await);
        sleep(SECOND).await;
    }
    assert_eq!(answers(vec![leads]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_limit_on_loads_shortens_the_wait_for_them() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let hasty = layer(memory).load_timeout(SECOND * 2).build().unwrap().layer(Loader::new());
    let ended = error_after(ask(&hasty, 1), Instant::now()).await;
    // And a second more, in which the outcome of the load would arrive.
    assert_eq!(ended, (CacheErrorKind::WaitTimedOut, SECOND * 3));
}

/// Another holder has the lease, and dies; one of this process takes it over when the wait of the
/// others is nearly over.
#[tokio::test(start_paused = true)]
async fn by_default_a_load_of_this_process_is_waited_for_to_its_end() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let _dies = lease(&memory, 1, SECOND * 25).await;
        let loader = Loader::taking(SECOND * 10);
        let asked = burst(&cached(place(&memory), &loader), 1, 5);
        assert_eq!(answers(asked).await, [1; 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gets_no_private_answer_has_its_full_wait_for_its_own_load() {
    for place in PLACES {
        let loader = Loader::taking(SECOND * 20);
        let layer =
            layer(place(&MemoryStore::new(10))).classify(|_: &usize| Cacheability::PrivateKey);
        let asked = burst(&layer.build().unwrap().layer(loader.clone()), 1, 5);
        let mut answers = answers(asked).await;
        answers.sort_unstable();
        assert_eq!(answers, [1, 2, 3, 4, 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_bounds_the_lookup_as_well() {
    let store = remote(&MemoryStore::new(10));
    let _looking = store.on(Operation::Lookup).nth(1).hold();
    let loader = Loader::new();
    let hasty = waiting(store.clone(), Wait::at_most(MILLI * 100), &loader);
    let ended = error_after(ask(&hasty, 1), Instant::now()).await;
    assert_eq!(ended, (CacheErrorKind::WaitTimedOut, MILLI * 100));
    assert_eq!((hasty.in_flight(), loader.loads()), (0, 0));
    let _looking = store.on(Operation::Lookup).nth(1).hold();
    let wait = Wait::at_most(MILLI * 100).then_load();
    let asked = ask(&waiting(store, wait, &loader), 1);
    let began = Instant::now();
    assert_eq!(answers(vec![asked]).await, [1]);
    assert_eq!(began.elapsed(), MILLI * 100);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_fast_waits_for_the_store_as_long_as_that_takes() {
    let store = remote(&MemoryStore::new(10));
    let looking = store.on(Operation::Lookup).nth(1).do_it_and_hold();
    let asked = ask(&waiting(store, Wait::fail_fast(), &Loader::new()), 1);
    sleep(SECOND).await;
    assert!(!asked.is_finished());
    looking.open();
    assert_eq!(answers(vec![asked]).await, [1]);
}

/// The message of an error, after a wait of two seconds.
async fn message(cached: &bellwether_testkit::caches::Cached) -> String {
    let (answer, _) = ask(cached, 1).await.expect("no panic");
    assert_eq!(kind_of(&answer), CacheErrorKind::WaitTimedOut);
    answer.unwrap_err().to_string()
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_says_what_it_waited_for() {
    let wait = Wait::at_most(SECOND * 2);
    let memory = MemoryStore::new(10);
    // A load of another process.
    let _leads = lease(&memory, 1, MINUTE).await;
    let said = message(&waiting(memory, wait, &Loader::new())).await;
    assert!(said.contains("another process, has the lease"), "{said}");
    // A load of this process.
    let memory = MemoryStore::new(10);
    let loader = Loader::gated();
    let here = waiting(memory, wait, &loader);
    let _leads = ask(&here, 1);
    loader.has_begun(1).await;
    let said = message(&here).await;
    assert!(said.contains("in this process") && said.contains("2s"), "{said}");
    // The store.
    let store = local(&MemoryStore::new(10));
    let _asked = store.on(Operation::Acquire).nth(1).hold();
    let said = message(&waiting(store, wait, &Loader::new())).await;
    assert!(said.contains("the store has not answered"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn the_status_says_how_long_was_waited_in_all() {
    let memory = MemoryStore::new(10);
    let loader = Loader::taking(SECOND * 7);
    let _leads = ask(&cached(memory.clone(), &loader), 1);
    idle().await;
    let ended = settled(burst(&cached(memory, &loader), 1, 1)).await;
    let CacheStatus::Collapsed { place: LoadLocation::Remote, waited } = ended[0].1 else {
        panic!("{:?}", ended[0]);
    };
    assert_eq!(waited.as_secs(), 6);
}
