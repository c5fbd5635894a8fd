//! Many keys by one call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bellwether::{Cache, CacheStatus, ErrorClass, LoadLocation, MemoryStore};
use bellwether_testkit::caches::{SECOND, idle};
use bellwether_testkit::loaders::{End, Loader, Refusal};
use tokio::time::sleep;

use super::{Answered, ask, asked, builder, cache, ended};

/// The parts of each call of a loader.
type Calls = Arc<Mutex<Vec<Vec<u64>>>>;

/// A loader of many that gives ten times the part, a second later.
async fn tenfold(calls: Calls, parts: Vec<u64>) -> Result<Vec<Result<usize, Refusal>>, Refusal> {
    calls.lock().unwrap().push(parts.clone());
    sleep(SECOND).await;
    Ok(parts.into_iter().map(|part| Ok(part as usize * 10)).collect())
}

async fn page(cache: &Cache<u64, usize>, calls: &Calls, parts: &[u64]) -> Vec<Answered> {
    let calls = Arc::clone(calls);
    let load = async move |parts| tenfold(calls, parts).await;
    cache.get_or_load_many(parts.to_vec(), load).with_status().await
}

#[tokio::test(start_paused = true)]
async fn one_call_loads_what_is_missing_in_the_order_of_the_keys() {
    let calls = Calls::default();
    let cache = cache(MemoryStore::new(10));
    cache.put(2, 7).await.unwrap();
    let page = page(&cache, &calls, &[3, 2, 1]).await;
    let values: Vec<_> = page.iter().map(|(answer, _)| *answer.as_ref().unwrap()).collect();
    assert_eq!(values, [30, 7, 10]);
    assert_eq!(*calls.lock().unwrap(), [[3, 1]]);
    assert!(matches!(page[1].1, CacheStatus::Hit { .. }));
    assert_eq!(page[0].1, CacheStatus::Led { stored: true });
}

#[tokio::test(start_paused = true)]
async fn a_batch_and_a_single_call_share_a_load() {
    let calls = Calls::default();
    let loader = Loader::gated();
    let cache = cache(MemoryStore::new(10));
    let single = ask(&cache, 1, &loader);
    loader.has_begun(1).await;
    let many = tokio::spawn({
        let (cache, calls) = (cache.clone(), Arc::clone(&calls));
        async move { page(&cache, &calls, &[1, 2]).await }
    });
    idle().await;
    loader.let_go(1);
    assert_eq!(ended(single).await.0.unwrap(), 1);
    let page = ended(many).await;
    assert_eq!(*page[0].0.as_ref().unwrap(), 1);
    assert!(matches!(page[0].1, CacheStatus::Collapsed { place: LoadLocation::Local, .. }));
    assert_eq!(*calls.lock().unwrap(), [[2]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_and_a_single_call_share_an_error() {
    let loader = Loader::gated();
    loader.ends_by(End::Fail);
    let cache = builder(MemoryStore::new(10))
        .classify_error(|_: &Refusal| ErrorClass::SourceFailure)
        .build()
        .expect("options");
    let single = ask(&cache, 1, &loader);
    loader.has_begun(1).await;
    let calls = Calls::default();
    let many = tokio::spawn({
        let cache = cache.clone();
        async move { page(&cache, &calls, &[1]).await }
    });
    idle().await;
    loader.let_go(1);
    assert_eq!(ended(single).await.0.unwrap_err().load(), Some(&Refusal(1)));
    assert_eq!(ended(many).await[0].0.as_ref().unwrap_err().load(), Some(&Refusal(1)));
    let failing = async |_: Vec<u64>| Err::<Vec<Result<usize, Refusal>>, _>(Refusal(7));
    for answer in cache.get_or_load_many([2, 3], failing).await {
        assert_eq!(answer.unwrap_err().load(), Some(&Refusal(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_answers_for_the_keys_that_it_has() {
    let cache: Cache<u64, Option<usize>> = builder(MemoryStore::new(10)).build().expect("options");
    let load = async |parts: Vec<u64>| {
        let even = parts.into_iter().filter(|part| part % 2 == 0);
        Ok::<_, Refusal>(even.map(|part| (part, part as usize)).collect::<HashMap<_, _>>())
    };
    let page: Vec<_> = cache.get_or_load_many(1..4_u64, load).await;
    let page: Vec<_> = page.into_iter().map(Result::unwrap).collect();
    assert_eq!(page, [None, Some(2), None]);
    let (answer, _) = asked(&super::cache(MemoryStore::new(10)), 1, &Loader::new()).await;
    assert_eq!(answer.unwrap(), 1);
}
