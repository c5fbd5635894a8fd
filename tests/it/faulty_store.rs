//! `FaultyStore` disturbs the calls that a test names, as the test says, and no others.

use std::time::Duration;

use bellwether::store::{
    Accept, Draft, Failure, Peek, Renew, Settled, Store, StoreErrorKind, StoreFuture, Value,
};
use bellwether::{CacheStatus, FailureCause, Lifetimes, MemoryStore, Tag};
use bellwether_test::faulty::{Fault, FaultyStore, Operation};
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::caches::{
    JSON, MINUTE, NEVER, SECOND, answer, ask, burst, cached, commit, is_leased, key, lease, put,
    settled,
};
use bellwether_testkit::loaders::Loader;
use futures_util::poll;
use tokio::time::{Instant, sleep, timeout};

const KIND: StoreErrorKind = StoreErrorKind::TimedOut;

fn faulty() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::new(100))
}

async fn has(store: &impl Store, item: u64) -> bool {
    store.find(key(item)).await.expect("an answer").is_some()
}

/// Which of the next `calls` lookups fail, counted from 1.
async fn failing(store: &impl Store, looks: usize) -> Vec<usize> {
    let mut failing = Vec::new();
    for look in 1..=looks {
        if store.find(key(1)).await.is_err() {
            failing.push(look);
        }
    }
    failing
}

/// Asks for an operation, and says whether that failed, and how.
async fn failure(store: &FaultyStore<MemoryStore>, operation: Operation) -> Option<StoreErrorKind> {
    async fn kind<T>(answer: StoreFuture<T>) -> Option<StoreErrorKind> {
        answer.await.err().map(|error| error.kind())
    }
    let lease = lease(store.inner(), 1, MINUTE).await;
    let draft = Draft::new(Value::new("1".into()), JSON, Lifetimes::fresh_for(MINUTE));
    match operation {
        Operation::Lookup => kind(store.find(key(1))).await,
        Operation::Acquire => kind(store.acquire(lease.claim, MINUTE, Accept::Fresh)).await,
        Operation::Renew => kind(store.renew(&lease, lease.term)).await,
        Operation::Commit => kind(store.commit(lease, draft)).await,
        Operation::Fail => {
            let failure = Failure::new(FailureCause::Error, 1, MINUTE);
            kind(store.fail(lease, failure)).await
        }
        Operation::Abandon => kind(store.abandon(lease.claim)).await,
        Operation::Invalidate => kind(store.invalidate(key(1))).await,
        Operation::Expire => kind(store.expire(key(1))).await,
        Operation::InvalidateTag => kind(store.invalidate_tag(Tag::of("tag"))).await,
        Operation::ExpireTag => kind(store.expire_tag(Tag::of("tag"), MINUTE)).await,
        other => panic!("{other:?} is not known here"),
    }
}

#[tokio::test(start_paused = true)]
async fn without_faults_it_keeps_the_contract() {
    assert_eq!(conformance::run(faulty()).await, []);
    assert_eq!(conformance::run(faulty().remote()).await, []);
}

#[tokio::test(start_paused = true)]
async fn every_operation_fails_when_it_was_named_and_then_only() {
    for (named, asked) in
        Operation::ALL.iter().flat_map(|named| Operation::ALL.iter().map(move |it| (named, it)))
    {
        let store = faulty();
        store.on(*named).fail(KIND);
        let expected = (named == asked).then_some(KIND);
        assert_eq!(failure(&store, *asked).await, expected, "{named:?} fails, {asked:?} is asked");
        for operation in Operation::ALL {
            let calls = usize::from(operation == asked);
            assert_eq!(store.calls(*operation), calls, "{operation:?} of {asked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_chosen_by_their_number_from_the_moment_a_fault_is_said() {
    let store = faulty();
    has(&store, 1).await;
    store.on(Operation::Lookup).nth(2).fail(KIND);
    assert_eq!(failing(&store, 6).await, [2]);
    store.heal();
    store.on(Operation::Lookup).first(2).fail(KIND);
    assert_eq!(failing(&store, 6).await, [1, 2]);
    store.heal();
    store.on(Operation::Lookup).every(2).fail(KIND);
    assert_eq!(failing(&store, 6).await, [2, 4, 6]);
    store.heal();
    store.on(Operation::Lookup).from_now_on().fail(KIND);
    assert_eq!(failing(&store, 3).await, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_number_that_chooses_nothing_chooses_nothing() {
    let store = faulty();
    store.on(Operation::Lookup).nth(0).fail(KIND);
    store.on(Operation::Lookup).first(0).fail(KIND);
    store.on(Operation::Lookup).every(0).fail(KIND);
    store.on(Operation::Lookup).one_in(0, 7).fail(KIND);
    assert_eq!(failing(&store, 100).await, [0; 0]);
    assert_eq!(store.struck(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_chooses_the_same_calls_and_another_one_others() {
    let mut chosen = Vec::new();
    for seed in [1, 1, 2] {
        let store = faulty();
        store.on(Operation::Lookup).one_in(10, seed).fail(KIND);
        chosen.push(failing(&store, 1000).await);
    }
    assert_eq!(chosen[0], chosen[1]);
    assert_ne!(chosen[0], chosen[2]);
    assert!((60..140).contains(&chosen[0].len()), "{} of 1000", chosen[0].len());
}

#[tokio::test(start_paused = true)]
async fn all_operations_are_counted_together_for_a_fault_on_any() {
    let store = faulty();
    store.on_any().nth(3).fail(KIND);
    assert_eq!(failing(&store, 2).await, [0; 0]);
    assert_eq!(store.invalidate(key(1)).await.unwrap_err().kind(), KIND);
    assert_eq!(store.calls(Operation::Lookup), 2);
    assert_eq!(store.calls(Operation::Invalidate), 1);
    assert_eq!(store.struck(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_not_done() {
    let store = faulty();
    put(&store, 1, "1", JSON).await;
    store.on(Operation::Invalidate).fail(KIND);
    assert_eq!(store.invalidate(key(1)).await.unwrap_err().kind(), KIND);
    assert!(has(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_but_fails_is_done() {
    let store = faulty();
    put(&store, 1, "1", JSON).await;
    store.on(Operation::Invalidate).do_it_but_fail(KIND);
    assert_eq!(store.invalidate(key(1)).await.unwrap_err().kind(), KIND);
    assert!(!has(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_as_long_as_was_said() {
    let store = faulty();
    store.on(Operation::Lookup).delay(MINUTE);
    let asked = Instant::now();
    has(&store, 1).await;
    assert_eq!(asked.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_goes_on_when_the_store_is_healed() {
    let store = faulty();
    put(&store, 1, "1", JSON).await;
    store.on(Operation::Lookup).hang();
    let mut look = store.find(key(1));
    assert!(timeout(SECOND, &mut look).await.is_err());
    store.heal();
    assert!(look.await.expect("an answer").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_hangs_even_after_the_last_handle() {
    let store = faulty();
    store.on(Operation::Lookup).hang();
    let look = store.find(key(1));
    drop(store);
    assert!(timeout(NEVER, look).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_healed_store_has_no_faults_not_even_for_calls_under_way() {
    let store = faulty();
    store.on(Operation::Lookup).meet(Fault::delay(MINUTE).then(Fault::fail(KIND)));
    let mut look = store.find(key(1));
    let asked = Instant::now();
    assert!(poll!(&mut look).is_pending());
    store.heal();
    assert!(look.await.is_ok());
    assert_eq!(failing(&store, 3).await, [0; 0]);
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_can_miss_what_is_there_and_find_what_is_not() {
    let store = faulty();
    put(&store, 1, "1", JSON).await;
    let entry = store.find(key(1)).await.expect("an answer");
    store.on_lookup().nth(1).miss();
    assert!(!has(&store, 1).await && has(&store, 1).await);
    store.on_lookup().found(entry);
    assert!(has(&store, 2).await);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_can_say_that_another_process_loads() {
    let store = faulty();
    store.on_acquire().nth(1).busy(SECOND);
    assert!(is_leased(&store, 1).await);
    assert!(!is_leased(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_renew_can_say_that_a_lease_was_lost() {
    let store = faulty();
    let lease = lease(&store, 1, MINUTE).await;
    store.on_renew().nth(1).renewed(Renew::Lost);
    assert_eq!(store.renew(&lease, lease.term).await.expect("an answer"), Renew::Lost);
    assert_eq!(store.renew(&lease, lease.term).await.expect("an answer"), Renew::Held);
}

#[tokio::test(start_paused = true)]
async fn a_commit_can_say_what_did_not_happen() {
    for said in [Settled::Done, Settled::Superseded] {
        let store = faulty();
        store.on_commit().committed(said);
        let lease = lease(&store, 1, MINUTE).await;
        assert_eq!(commit(&store, lease, "1").await, said);
        assert!(!has(&store, 1).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_a_fault_come_one_after_the_other() {
    let store = faulty();
    let late = Fault::do_it().then(Fault::delay(SECOND));
    store.on_commit().meet(late.then(Fault::committed(Settled::Superseded)));
    let lease = lease(&store, 1, MINUTE).await;
    let asked = Instant::now();
    let draft = Draft::new(Value::new("1".into()), JSON, Lifetimes::fresh_for(MINUTE));
    let mut answer = store.commit(lease, draft);
    assert!(poll!(&mut answer).is_pending());
    assert!(has(&store, 1).await, "it is done before the delay");
    assert_eq!(answer.await.expect("an answer"), Settled::Superseded);
    assert_eq!(asked.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_call_meets_all_its_faults_in_the_order_they_were_said() {
    let store = faulty();
    store.on(Operation::Lookup).delay(SECOND);
    store.on_any().delay(SECOND);
    store.on(Operation::Lookup).fail(KIND);
    store.on_lookup().miss();
    let asked = Instant::now();
    assert_eq!(store.find(key(1)).await.unwrap_err().kind(), KIND);
    assert_eq!(asked.elapsed(), 2 * SECOND);
    assert_eq!(store.struck(), 1, "it is one call");
}

#[tokio::test(start_paused = true)]
async fn a_remote_store_knows_of_nothing_without_being_asked() {
    let store = faulty();
    put(&store, 1, "1", JSON).await;
    assert!(matches!(store.peek(&key(1)), Peek::Found(_)));
    let remote = store.remote();
    assert!(matches!(remote.peek(&key(1)), Peek::Unknown));
    assert!(has(&remote, 1).await);
}

#[tokio::test(start_paused = true)]
async fn change_messages_arrive_or_are_lost_or_are_reported_unavailable() {
    let store = faulty();
    let mut hearing = store.watch(&key(1));
    store.lose_changes();
    let mut losing = store.watch(&key(1));
    put(&store, 1, "1", JSON).await;
    assert!(timeout(NEVER, hearing.changed()).await.is_ok());
    assert!(!losing.is_silent() && timeout(NEVER, losing.changed()).await.is_err());
    store.heal();
    assert!(store.without_push().watch(&key(1)).is_silent());
}

#[tokio::test(start_paused = true)]
async fn a_service_answers_whatever_one_operation_comes_to() {
    let faults = [Fault::fail(KIND), Fault::do_it().then(Fault::fail(KIND)), Fault::delay(SECOND)];
    for (operation, fault) in
        Operation::ALL.iter().flat_map(|operation| faults.iter().map(move |it| (operation, it)))
    {
        let store = faulty().remote();
        store.on(*operation).meet(fault.clone());
        let loader = Loader::taking(SECOND);
        let ended = settled(burst(&cached(store.clone(), &loader), 1, 10)).await;
        assert!(ended.iter().all(|(answer, _)| answer.is_ok()), "{operation:?}, {fault:?}");
        assert_eq!(loader.most_at_once(), 1, "{operation:?}, {fault:?}");
    }
}

/// A wrong answer of the store costs a load, and no error.
#[tokio::test(start_paused = true)]
async fn a_commit_that_only_says_it_stored_is_loaded_again() {
    let store = faulty();
    store.on_commit().nth(1).committed(Settled::Done);
    let cached = cached(store.clone(), &Loader::new());
    let (first, status) = ask(&cached, 1).await.expect("no panic");
    assert_eq!((first.expect("an answer"), status), (1, CacheStatus::Led { stored: true }));
    assert!(is_leased(store.inner(), 1).await, "the lease that it says is spent");
    sleep(MINUTE).await;
    assert_eq!(answer(&cached, 1).await, 2);
}
