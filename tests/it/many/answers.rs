//! An outcome for each request, independent of the others.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use bellwether::codec::Cacheability;
use bellwether::{CacheErrorKind, CacheStatus, LoadLocation, MemoryStore, StaleReason};
use bellwether_testkit::caches::{MINUTE, SECOND, idle, kind_of, tasks};
use bellwether_testkit::loaders::Refusal;
use tokio::runtime::Builder;
use tokio::time::advance;

use super::query::{End, Query};
use super::{Catalog, answers, ask_many, builder, catalog, ended, fault, statuses};
use crate::support::store::{Operation, UNREACHABLE, local, remote};

#[tokio::test(start_paused = true)]
async fn answers_come_in_the_order_of_the_requests() {
    let catalog = catalog(remote(&MemoryStore::new(10)), &Query::new());
    assert_eq!(answers(ask_many(&catalog, [3])).await, [30]);
    assert_eq!(answers(ask_many(&catalog, [4, 3, 1, 2])).await, [40, 30, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_hits_calls_no_loader_and_starts_no_task() {
    let query = Query::new();
    let store = MemoryStore::new(1_000);
    let catalog = catalog(store, &query);
    answers(ask_many(&catalog, 0..100)).await;
    idle().await;
    let before = tasks();
    let page = catalog.load_many(0..100);
    let page = tokio_test::task::spawn(page).poll();
    assert!(page.is_ready());
    assert_eq!((tasks(), query.calls().len()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn hits_across_a_wire_call_no_loader() {
    let query = Query::new();
    let memory = MemoryStore::new(1_000);
    answers(ask_many(&catalog(memory.clone(), &query), 0..100)).await;
    let store = remote(&memory);
    let catalog = catalog(store.clone(), &query);
    let statuses = statuses(ask_many(&catalog, 0..100)).await;
    assert!(statuses.iter().all(|status| matches!(status, CacheStatus::Hit { .. })));
    assert_eq!((store.total_calls(), store.calls(Operation::Lookup)), (100, 100));
    assert_eq!(query.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_requests_are_no_call() {
    let query = Query::new();
    assert!(catalog(MemoryStore::new(10), &query).load_many([]).await.is_empty());
    assert!(query.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_is_answered_by_what_is_there_of_it() {
    let query = Query::new();
    let memory = MemoryStore::new(10);
    let cache = builder(remote(&memory)).stale_while_revalidate(MINUTE);
    let catalog = Catalog::new(cache, &query);
    answers(ask_many(&catalog, [1, 2])).await;
    advance(MINUTE + SECOND).await;
    answers(ask_many(&catalog, [5])).await;
    query.ends_by(End::FailFor(3));
    let page = ended(ask_many(&catalog, [1, 2, 3, 4, 5])).await;
    let revalidating = CacheStatus::Stale { why: StaleReason::Revalidating, stale_for: SECOND };
    for (page, item) in page[..2].iter().zip([10, 20]) {
        assert_eq!((page.0.as_ref().unwrap(), &page.1), (&item, &revalidating));
    }
    assert_eq!(fault(page[2].0.clone()).get(), Some(&Refusal(3)));
    assert_eq!(page[3].1, CacheStatus::Led { stored: true });
    assert!(matches!(page[4].1, CacheStatus::Hit { .. }));
    idle().await;
    assert_eq!(query.calls()[2..], [[1, 2, 3, 4]], "what is stale goes along");
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_takes_nothing_from_the_others() {
    let query = Query::ending(End::FailFor(2));
    let memory = MemoryStore::new(10);
    let catalog = catalog(memory, &query);
    let page = ended(ask_many(&catalog, [1, 2, 3])).await;
    assert_eq!((page[0].0.as_ref().unwrap(), page[2].0.as_ref().unwrap()), (&10, &30));
    assert_eq!(fault(page[1].0.clone()).get(), Some(&Refusal(2)));
    assert!(statuses(ask_many(&catalog, [1, 3])).await.iter().all(is_hit));
}

fn is_hit(status: &CacheStatus) -> bool {
    matches!(status, CacheStatus::Hit { .. })
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_twice_is_loaded_once_and_given_twice() {
    for store in [local, remote] {
        let query = Query::new();
        let store = store(&MemoryStore::new(10));
        let catalog = catalog(store, &query);
        assert_eq!(answers(ask_many(&catalog, [1, 2, 1, 1, 2])).await, [10, 20, 10, 10, 20]);
        assert_eq!(query.calls(), [[1, 2]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_answers_is_an_error_of_every_one() {
    for (end, given) in [(End::OneTooFew, 2), (End::OneTooMany, 4)] {
        let catalog = catalog(MemoryStore::new(10), &Query::ending(end));
        for (answer, _) in ended(ask_many(&catalog, [1, 3, 2])).await {
            assert_eq!(kind_of(&answer), CacheErrorKind::WrongCount);
            let error = answer.expect_err("a wrong count").to_string();
            assert!(error.contains(&format!("asked for 3 and gave {given} answers")), "{error}");
        }
        let single = catalog.load(4).await.expect_err("not one answer");
        assert!(single.to_string().contains("asked for 1 and gave"), "{single}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_whole_call_is_the_same_error_for_each_caller() {
    let catalog = catalog(MemoryStore::new(10), &Query::ending(End::Fail));
    let page = ended(ask_many(&catalog, [1, 3, 2])).await;
    let errors: Vec<_> = page.into_iter().map(|(answer, _)| fault(answer)).collect();
    assert!(errors.iter().all(|error| error.ptr_eq(&errors[0])), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_call_reaches_each_of_its_callers_and_no_other() {
    for end in [End::Panic, End::PanicInCall] {
        let query = Query::ending(end);
        let catalog = catalog(MemoryStore::new(10), &query);
        let page = ended(ask_many(&catalog, [1, 3, 2])).await;
        for (answer, _) in &page {
            assert_eq!(kind_of(answer), CacheErrorKind::LoaderPanicked);
        }
        query.ends_by(End::Answer);
        assert_eq!(answers(ask_many(&catalog, [1, 3, 2])).await[0], 10);
        assert_eq!(catalog.cache.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_for_a_key_of_private_answers_is_counted_as_one() {
    let query = Query::new();
    let cache = builder(MemoryStore::new(10)).classify(|_| Cacheability::PrivateKey);
    let catalog = Catalog::new(cache, &query);
    for _ in 0..2 {
        catalog.load_many([1]).await;
    }
    query.ends_by(End::Panic);
    let page = catalog.load_many([1]).await;
    assert_eq!(kind_of(&page[0]), CacheErrorKind::LoaderPanicked);
    let stats = catalog.cache.stats();
    assert_eq!((stats.load_times.panicked.count(), stats.load_times.cancelled.count()), (1, 0));
    assert_eq!(stats.requests.left, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_costs_no_answer() {
    let query = Query::new();
    let store = remote(&MemoryStore::new(10));
    store.on(Operation::Lookup).fail(UNREACHABLE);
    store.on(Operation::Acquire).fail(UNREACHABLE);
    assert_eq!(answers(ask_many(&catalog(store, &query), [1, 2, 3])).await, [10, 20, 30]);
    assert_eq!(query.calls(), [[1, 2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn answers_by_key_belong_to_the_item_they_name_and_a_missing_one_is_none() {
    let by_hash = async |items: Vec<u64>| {
        let known = items.into_iter().rev().filter(|item| item % 2 == 0).chain([8]);
        Ok::<_, Infallible>(known.map(|item| (item, item * 10)).collect::<HashMap<_, _>>())
    };
    let cache = builder(MemoryStore::new(10)).build().unwrap();
    let page: Vec<_> = cache.get_or_load_many([2, 1, 6, 4, 6], by_hash).await;
    let page: Vec<_> = page.into_iter().map(|answer| answer.expect("an answer")).collect();
    assert_eq!(page, [Some(20), None, Some(60), Some(40), Some(60)]);
    let in_tree = async |items: Vec<u64>| {
        Ok::<_, Infallible>(items.into_iter().map(|item| (item, 1)).collect::<BTreeMap<_, _>>())
    };
    let page = cache.get_or_load_many([7], in_tree).await;
    assert_eq!(page[0].as_ref().ok(), Some(&Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_single_request_is_a_batch_of_one_and_shares_what_is_loaded() {
    let query = Query::gated();
    let catalog = catalog(MemoryStore::new(10), &query);
    let single = super::ask(&catalog, 1);
    query.has_begun(1).await;
    let page = ask_many(&catalog, [1, 2]);
    query.has_begun(2).await;
    query.let_go(2);
    assert_eq!(ended(single).await.ok(), Some(10));
    let page = statuses(page).await;
    assert!(matches!(page[0], CacheStatus::Collapsed { place: LoadLocation::Local, .. }));
    assert_eq!(query.calls(), [[1], [2]]);
}

#[test]
fn without_a_runtime_hits_are_answered_and_misses_are_errors() {
    let query = Query::new();
    let store = MemoryStore::new(10);
    let catalog = catalog(store, &query);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { answers(ask_many(&catalog, [1])).await });
    let page = catalog.load_many([1, 2]);
    let page = futures_util::FutureExt::now_or_never(page).expect("nothing to wait for");
    assert_eq!(page[0].as_ref().ok(), Some(&10));
    assert_eq!(kind_of(&page[1]), CacheErrorKind::NoRuntime);
}
