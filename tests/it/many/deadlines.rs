//! Deadlines of the requests of a batch.

use std::time::Duration;

use bellwether::batch::Batched;
use bellwether::service::{Lookup, ReadThrough};
use bellwether::store::Store;
use bellwether::{CacheErrorKind, MemoryStore, ReadThroughLayer};
use bellwether_testkit::caches::{MINUTE, SECOND, idle, key, kind_of, tasks};
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::query::Query;
use super::{KEYLESS, ended};
use crate::support::store::{Gate, Operation, remote};

const DEADLINE: Duration = Duration::from_millis(50);

type AskOf = fn(&u64) -> Lookup;
type Hurried = ReadThrough<Batched<Query>, AskOf>;

/// A catalog whose requests all have 50 ms.
fn hurried(store: impl Store, query: &Query) -> Hurried {
    let ask_of: AskOf = |item| {
        let ask = if *item < KEYLESS { Lookup::of(key(*item)) } else { Lookup::none() };
        ask.deadline(Instant::now() + DEADLINE)
    };
    ReadThroughLayer::builder(store, ask_of)
        .ttl(MINUTE)
        .build()
        .unwrap()
        .layer(Batched::new(query.clone()))
}

/// A batch whose requests all end by their deadline, without an answer.
async fn misses_its_deadline(catalog: &Hurried, items: impl IntoIterator<Item = u64>) {
    let began = Instant::now();
    let answers = ended(tokio::spawn(catalog.load_many(items))).await;
    assert!(began.elapsed() <= DEADLINE, "{:?}", began.elapsed());
    for answer in &answers {
        assert_eq!(kind_of(answer), CacheErrorKind::DeadlineExceeded);
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines_bound_a_batch_that_its_caller_loads_and_the_call_goes_on() {
    let query = Query::gated();
    let catalog = hurried(MemoryStore::new(10), &query);
    misses_its_deadline(&catalog, [1, 2, 3, KEYLESS]).await;
    assert_eq!(query.calls().len(), 1);
    query.let_go(1);
    idle().await;
    let answers = ended(tokio::spawn(catalog.load_many([1, 2, 3]))).await;
    assert!(answers.iter().all(Result::is_ok), "they are kept: {answers:?}");
    assert_eq!((query.calls().len(), tasks()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn deadlines_bound_a_batch_while_the_store_hangs() {
    for op in [Operation::Lookup, Operation::Acquire] {
        let store = remote(&MemoryStore::new(10));
        let gates: Vec<_> = (0..3).map(|_| store.on(op).nth(1).hold()).collect();
        let catalog = hurried(store, &Query::new());
        misses_its_deadline(&catalog, [1, 2, 3]).await;
        gates.iter().for_each(Gate::open);
        sleep(SECOND).await;
        assert_eq!((catalog.in_flight(), tasks()), (0, 0));
    }
}
