//! Deadlines of the requests of a batch.

use std::time::Duration;

use bellwether::{CacheErrorKind, MemoryStore};
use bellwether_testkit::caches::{SECOND, idle, kind_of, tasks};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::query::Query;
use super::{Answered, Catalog, ask_many, catalog, ended};
use crate::support::store::{Gate, Operation, remote};

const DEADLINE: Duration = Duration::from_millis(50);

/// A batch whose requests all have 50 ms.
fn hurried(catalog: &Catalog) -> JoinHandle<Vec<Answered>> {
    let cache = catalog.cache.with_deadline(Instant::now() + DEADLINE);
    ask_many(&Catalog { cache, ..catalog.clone() }, [1, 2, 3])
}

/// A batch whose requests all end by their deadline, without an answer.
async fn misses_its_deadline(catalog: &Catalog) {
    let began = Instant::now();
    let answers = ended(hurried(catalog)).await;
    assert!(began.elapsed() <= DEADLINE, "{:?}", began.elapsed());
    for (answer, _) in &answers {
        assert_eq!(kind_of(answer), CacheErrorKind::DeadlineExceeded);
    }
}

#[tokio::test(start_paused = true)]
async fn deadlines_bound_a_batch_that_its_caller_loads_and_the_call_goes_on() {
    let query = Query::gated();
    let catalog = catalog(MemoryStore::new(10), &query);
    misses_its_deadline(&catalog).await;
    assert_eq!(query.calls().len(), 1);
    query.let_go(1);
    idle().await;
    let answers = ended(hurried(&catalog)).await;
    assert!(answers.iter().all(|(answer, _)| answer.is_ok()), "they are kept: {answers:?}");
    assert_eq!((query.calls().len(), tasks()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn deadlines_bound_a_batch_while_the_store_hangs() {
    for op in [Operation::Lookup, Operation::Acquire] {
        let store = remote(&MemoryStore::new(10));
        let gates: Vec<_> = (0..3).map(|_| store.on(op).nth(1).hold()).collect();
        let catalog = catalog(store, &Query::new());
        misses_its_deadline(&catalog).await;
        gates.iter().for_each(Gate::open);
        sleep(SECOND).await;
        assert_eq!((catalog.cache.in_flight(), tasks()), (0, 0));
    }
}
