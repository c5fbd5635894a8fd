//! A failed load is one failure, shared by its waiters.

use bellwether::codec::{Cacheability, Codec};
use bellwether::{
    BypassReason, CacheErrorKind, CacheStatus, Error, MemoryStore, ReadThroughLayer, SharedError,
};
use bellwether_testkit::caches::codec::{Faults, Text};
use bellwether_testkit::caches::{
    Answered, Cached, SECOND, answer, answers, ask, burst, cached, idle, is_leased, key, kind_of,
    layer, put, settled,
};
use bellwether_testkit::loaders::{End, Loader, Refusal};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::support::store::remote;

fn failing(end: End) -> Loader {
    let loader = Loader::taking(SECOND);
    loader.ends_by(end);
    loader
}

fn refusal((answer, _): &Answered) -> &SharedError<Refusal> {
    match answer {
        Err(Error::Load(error)) => error,
        other => panic!("{other:?} is no error of the loader"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_a_second_load_is_shared_by_all_waiters() {
    let ended = settled(burst(&cached(MemoryStore::new(10), &failing(End::Fail)), 1, 100)).await;
    assert_eq!(refusal(&ended[0]).get(), Some(&Refusal(1)));
    let second = refusal(&ended[1]);
    assert_eq!(second.get(), Some(&Refusal(2)));
    assert!(ended[1..].iter().all(|other| second.ptr_eq(refusal(other))));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_given_to_all_at_once() {
    let began = Instant::now();
    let loader = failing(End::Fail);
    settled(burst(&cached(MemoryStore::new(10), &loader), 1, 100)).await;
    assert_eq!((began.elapsed(), loader.loads()), (SECOND * 2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_kept() {
    let loader = failing(End::Fail);
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    settled(burst(&cached, 1, 100)).await;
    assert!(store.is_empty());
    loader.ends_by(End::Answer);
    assert_eq!(answer(&cached, 1).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_leaves_the_key_free_at_once() {
    let store = MemoryStore::new(10);
    settled(vec![ask(&cached(store.clone(), &failing(End::Fail)), 1)]).await;
    idle().await;
    assert!(!is_leased(&store, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_failure_without_a_key_is_an_error_of_the_loader() {
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), |_: &u64| None).build().unwrap();
    let loader = failing(End::Fail);
    let ended = layer.layer(loader).call(1).await;
    assert_eq!(ended.unwrap_err().load(), Some(&Refusal(1)));
}

/// All waiters get the error, the key is free, and the next request is served.
async fn is_survived<C: Codec<usize>>(
    cached: &Cached<C>,
    store: &MemoryStore,
    kind: CacheErrorKind,
) {
    let ended = settled(burst(cached, 1, 10)).await;
    let kinds: Vec<_> = ended.iter().map(|(answer, _)| kind_of(answer)).collect();
    assert_eq!(kinds, [kind; 10]);
    idle().await;
    assert!(!is_leased(store, 1).await);
    assert_eq!(cached.in_flight(), 0);
}

async fn a_panicking_loader_is_survived(end: End) {
    let loader = failing(end);
    let store = MemoryStore::new(10);
    let cached = cached(store.clone(), &loader);
    is_survived(&cached, &store, CacheErrorKind::LoaderPanicked).await;
    loader.ends_by(End::Answer);
    answer(&cached, 1).await;
}

/// It has no key, or answers of its key are private: its load is in the caller's own task.
#[tokio::test(start_paused = true)]
async fn a_panic_of_a_load_past_the_cache_is_an_error_of_its_caller() {
    const KEYLESS: u64 = 900;
    for end in [End::Panic, End::PanicInCall, End::PanicInPollReady] {
        let loader = Loader::new();
        let key_of = |item: &u64| (*item < KEYLESS).then(|| key(*item));
        let layer = ReadThroughLayer::builder(MemoryStore::new(10), key_of);
        let layer = layer.classify(|_: &usize| Cacheability::PrivateKey);
        let cached = layer.build().unwrap().layer(loader.clone());
        let ask = |item| tokio::spawn(cached.clone().call(item).with_status());
        // After two private answers in a row, callers bypass the cache.
        answers(vec![ask(1)]).await;
        answers(vec![ask(1)]).await;
        loader.ends_by(end);
        let reasons = [(1, BypassReason::Private), (KEYLESS, BypassReason::NoKey)];
        for (item, why) in reasons {
            let (answer, status) = ask(item).await.expect("the panic does not reach its task");
            assert_eq!(kind_of(&answer), CacheErrorKind::LoaderPanicked);
            assert_eq!(status, CacheStatus::Bypass(why));
        }
        assert_eq!(cached.stats().load_times.panicked.count(), 2);
        loader.ends_by(End::Answer);
        answers(vec![ask(1), ask(KEYLESS)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_loaders_future_is_survived() {
    a_panicking_loader_is_survived(End::Panic).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_call_of_the_loader_is_survived() {
    a_panicking_loader_is_survived(End::PanicInCall).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_readiness_of_the_loader_is_survived() {
    a_panicking_loader_is_survived(End::PanicInPollReady).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_loader_is_no_convoy() {
    let loader = failing(End::Panic);
    settled(burst(&cached(MemoryStore::new(10), &loader), 1, 10)).await;
    assert_eq!(loader.loads(), 2);
}

async fn a_panicking_codec_is_survived(faults: Faults) {
    let loader = Loader::taking(SECOND);
    let store = MemoryStore::new(10);
    let broken =
        layer(store.clone()).codec(Text::new(faults)).build().unwrap().layer(loader.clone());
    is_survived(&broken, &store, CacheErrorKind::LoaderPanicked).await;
    answer(&layer(store).codec(Text::new(Faults::None)).build().unwrap().layer(loader), 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_encoding_of_an_answer_is_survived() {
    a_panicking_codec_is_survived(Faults::PanicsInEncode).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_cacheability_of_an_answer_is_survived() {
    a_panicking_codec_is_survived(Faults::PanicsInKeep).await;
}

/// A panic in the decoding of an entry of another process ends the task of the flight. Its callers
/// go back to the store. They must not do so without end, panic after panic.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_decoding_of_an_entry_ends_soon() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "42", Text::CODEC).await;
    let text = Text::new(Faults::PanicsInDecode);
    let cached = layer(remote(&memory)).codec(text.clone()).build().unwrap().layer(Loader::new());
    futures_util::future::join_all(burst(&cached, 1, 10)).await;
    idle().await;
    assert!(text.decoded() <= 11, "{} times for 10 callers", text.decoded());
    assert_eq!(cached.in_flight(), 0);
}

fn hurried(store: &MemoryStore, loader: &Loader) -> Cached {
    let layer = layer(store.clone()).load_timeout(SECOND * 2).build().unwrap();
    layer.layer(loader.clone())
}

#[tokio::test(start_paused = true)]
async fn a_load_past_its_limit_is_an_error_for_all_waiters() {
    let store = MemoryStore::new(10);
    let began = Instant::now();
    let cached = hurried(&store, &Loader::taking(SECOND * 3));
    let ended = settled(burst(&cached, 1, 10)).await;
    assert!(ended.iter().all(|(answer, _)| kind_of(answer) == CacheErrorKind::LoadTimedOut));
    assert_eq!(began.elapsed(), SECOND * 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_past_its_limit_is_dropped() {
    let loader = Loader::gated();
    settled(vec![ask(&hurried(&MemoryStore::new(10), &loader), 1)]).await;
    assert_eq!((loader.dropped(), loader.running()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_load_past_its_limit_leaves_the_key_free_at_once() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = hurried(&store, &loader);
    is_survived(&cached, &store, CacheErrorKind::LoadTimedOut).await;
    loader.let_go(1);
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_ends_at_its_limit_counts_as_in_time_or_not_but_ends() {
    let store = MemoryStore::new(10);
    let ended = settled(burst(&hurried(&store, &Loader::taking(SECOND * 2)), 1, 10)).await;
    let answered = ended.iter().filter(|(answer, _)| answer.is_ok()).count();
    assert!(answered == 0 || answered == 10, "{answered} of 10");
}
