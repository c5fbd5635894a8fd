//! Each key of a batch is coalesced with all other callers of it.

use bellwether::{CacheStatus, LoadLocation, MemoryStore};
use bellwether_testkit::caches::idle;
use bellwether_testkit::loaders::Refusal;

use super::query::{End, Query};
use super::{answers, ask, ask_many, catalog, ended, fault, statuses};
use crate::support::store::{local, remote};

#[tokio::test(start_paused = true)]
async fn batches_that_overlap_in_one_process_load_each_key_once() {
    let query = Query::new();
    let catalog = catalog(remote(&MemoryStore::new(10)), &query);
    let pages = [ask_many(&catalog, [1, 2]), ask_many(&catalog, [2, 3])];
    let [first, second] = pages;
    assert_eq!((answers(first).await, answers(second).await), (vec![10, 20], vec![20, 30]));
    assert_eq!(query.loaded(), [1, 2, 3]);
    assert_eq!(query.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn batches_that_overlap_in_two_processes_load_each_key_once() {
    for place in [local, remote] {
        let query = Query::new();
        let memory = MemoryStore::new(10);
        let [here, there] = [(); 2].map(|()| catalog(place(&memory), &query));
        let first = ask_many(&here, [1, 2]);
        let second = ask_many(&there, [2, 3]);
        assert_eq!((answers(first).await, answers(second).await), (vec![10, 20], vec![20, 30]));
        assert_eq!(query.loaded(), [1, 2, 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn batches_in_opposite_orders_wait_for_each_other_without_an_end_to_neither() {
    let query = Query::new();
    let memory = MemoryStore::new(1_000);
    let fleet = [(); 4].map(|()| catalog(remote(&memory), &query));
    let pages: Vec<_> = (0..40)
        .map(|page| {
            let items = (page..page + 50).collect::<Vec<_>>();
            let turned = items.iter().rev().copied().collect();
            ask_many(&fleet[page as usize % 4], if page % 2 == 0 { items } else { turned })
        })
        .collect();
    for page in pages {
        answers(page).await;
    }
    assert_eq!(query.loaded(), (0..89).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_failed_item_of_two_batches_fails_in_both_and_the_others_are_delivered() {
    let query = Query::gated();
    let memory = MemoryStore::new(10);
    query.ends_by(End::FailFor(2));
    let catalog = catalog(remote(&memory), &query);
    let first = ask_many(&catalog, [1, 2]);
    query.has_begun(1).await;
    let second = ask_many(&catalog, [2, 3]);
    query.has_begun(2).await;
    query.let_go(3);
    let first = ended(first).await;
    let second = ended(second).await;
    assert_eq!(fault(first[1].0.clone()).get(), Some(&Refusal(2)));
    assert_eq!(fault(second[0].0.clone()).get(), Some(&Refusal(2)));
    assert_eq!((first[0].0.as_ref().ok(), second[1].0.as_ref().ok()), (Some(&10), Some(&30)));
    assert_eq!(query.loaded(), [1, 2, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn items_that_another_process_loads_are_waited_for_and_the_others_are_not() {
    let slow = Query::gated();
    let quick = Query::new();
    let memory = MemoryStore::new(10);
    let there = catalog(remote(&memory), &slow);
    let here = catalog(remote(&memory), &quick);
    let elsewhere = ask_many(&there, [2]);
    slow.has_begun(1).await;
    let page = ask_many(&here, [1, 2, 3]);
    idle().await;
    assert_eq!(quick.calls(), [[1, 3]]);
    assert_eq!(answers(ask_many(&here, [1, 3])).await, [10, 30], "kept, while 2 is waited for");
    slow.let_go(1);
    let page = statuses(page).await;
    assert!(
        matches!(page[1], CacheStatus::Collapsed { place: LoadLocation::Remote, .. }),
        "{page:?}"
    );
    answers(elsewhere).await;
    assert_eq!(quick.calls(), [[1, 3]]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_joins_a_key_of_a_batch_is_answered_by_its_call() {
    let query = Query::gated();
    let catalog = catalog(remote(&MemoryStore::new(10)), &query);
    let page = ask_many(&catalog, [1, 2]);
    query.has_begun(1).await;
    let single = ask(&catalog, 2);
    idle().await;
    query.let_go(1);
    assert_eq!(ended(single).await.ok(), Some(20));
    assert_eq!(answers(page).await, [10, 20]);
    assert_eq!(query.calls(), [[1, 2]]);
}
