//! The layer is a good neighbour in a stack of Tower services.

use std::convert::Infallible;
use std::error::Error as _;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use bellwether::codec::Json;
use bellwether::service::{Handle, ReadThrough, ReadThroughLayerBuilder};
use bellwether::store::{self, Digest, Store, StoreErrorKind};
use bellwether::{
    AnswerFuture, BypassReason, CacheError, CacheErrorKind, CacheStatus, ConfigError, Error, Key,
    LoadLocation, MemoryStore, ReadThroughLayer, StoreError, Wait, WhenAbandoned,
};
use bellwether_redis::{RedisOptions, RedisStats, RedisStore};
use bellwether_testkit::caches::{
    Cached, JSON, KeyOf, SECOND, answer, ask, cached, idle, key, layer, put, settled,
};
use bellwether_testkit::loaders::{Loader, Refusal};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::timeout::error::Elapsed;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock;

type Mocked = ReadThrough<mock::Mock<u64, usize>, KeyOf, Json>;

fn mocked() -> (Mocked, mock::Handle<u64, usize>) {
    let (loader, handle) = mock::pair();
    (layer(MemoryStore::new(10)).build().unwrap().layer(loader), handle)
}

#[tokio::test]
async fn it_is_ready_even_if_the_loader_is_not() {
    let (cached, mut loader) = mocked();
    loader.allow(0);
    assert_ready_ok!(mock::Spawn::new(cached).poll_ready());
}

#[tokio::test(start_paused = true)]
async fn a_load_waits_until_the_loader_is_ready() {
    let (mut cached, mut loader) = mocked();
    loader.allow(0);
    let mut asked = task::spawn(cached.call(1));
    assert_pending!(asked.poll());
    idle().await;
    assert!(loader.poll_request().is_pending(), "called before it was ready");
    loader.allow(1);
    let (request, respond) = loader.next_request().await.unwrap();
    respond.send_response(42);
    assert_eq!((request, asked.await.unwrap()), (1, 42));
}

#[tokio::test(start_paused = true)]
async fn a_loader_that_refuses_to_be_ready_is_an_error_of_the_loader() {
    let (mut cached, mut loader) = mocked();
    loader.send_error("overloaded");
    let error = cached.call(1).await.unwrap_err();
    assert_eq!(error.source().map(|error| error.to_string()).as_deref(), Some("overloaded"));
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_readiness_of_the_service_it_was_made_on() {
    let (mut cached, mut loader) = mocked();
    loader.allow(1);
    // Ready by hand, as some do; the load must not lean on that very instance.
    cached.get_mut().ready().await.unwrap();
    let asked = tokio::spawn(cached.call(1));
    let (_, respond) = loader.next_request().await.unwrap();
    respond.send_response(42);
    assert_eq!(asked.await.unwrap().unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_below_bounds_the_loads_of_different_keys() {
    let loader = Loader::taking(SECOND);
    let layer = layer(MemoryStore::new(100)).build().unwrap();
    let cached = ServiceBuilder::new().layer(layer).concurrency_limit(2).service(loader.clone());
    let began = Instant::now();
    join_all((0..10).map(|item| cached.clone().oneshot(item))).await;
    assert_eq!((loader.most_at_once(), began.elapsed()), (2, SECOND * 5));
}

#[tokio::test(start_paused = true)]
async fn hits_and_followers_take_nothing_of_a_concurrency_limit_below() {
    let loader = Loader::gated();
    let layer = layer(MemoryStore::new(100)).build().unwrap();
    let cached = ServiceBuilder::new().layer(layer).concurrency_limit(2).service(loader.clone());
    let followers = (0..100).map(|_| tokio::spawn(cached.clone().oneshot(1))).collect::<Vec<_>>();
    loader.has_begun(1).await;
    let other = tokio::spawn(cached.clone().oneshot(2));
    loader.has_begun(2).await;
    loader.let_go(2);
    assert_eq!(other.await.unwrap().unwrap(), 2);
    join_all(followers).await;
}

#[tokio::test(start_paused = true)]
async fn a_buffer_below_works() {
    let loader = ServiceBuilder::new().buffer(1).service(Loader::new());
    let mut cached = layer(MemoryStore::new(100)).build().unwrap().layer(loader);
    for item in 0..10 {
        assert_eq!(cached.ready().await.unwrap().call(item).await.unwrap(), item as usize + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_below_is_an_error_of_the_loader() {
    let loader = ServiceBuilder::new().timeout(SECOND).service(Loader::gated());
    let error =
        layer(MemoryStore::new(10)).build().unwrap().layer(loader).call(1).await.unwrap_err();
    assert!(error.source().is_some_and(|error| error.is::<Elapsed>()), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_above_ends_the_request_and_not_the_load() {
    let store = MemoryStore::new(10);
    let mut service = ServiceBuilder::new()
        .timeout(SECOND)
        .layer(layer(store).build().unwrap())
        .service(Loader::taking(SECOND * 2));
    let error = service.ready().await.unwrap().call(1).await.unwrap_err();
    assert!(error.is::<Elapsed>(), "{error:?}");
    sleep(SECOND * 2).await;
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_passes_through_a_stack_of_boxed_errors_and_can_be_recognized_there() {
    let loader = service_fn(async |_: u64| Err::<usize, _>(Refusal(7)));
    let cached = layer(MemoryStore::new(10)).build().unwrap().layer(loader);
    let boxed: BoxError = cached.oneshot(1).await.unwrap_err().into();
    let error = boxed.downcast::<Error<Refusal>>().expect("the error itself");
    assert_eq!(error.load(), Some(&Refusal(7)));
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_share_their_loads() {
    let loader = Loader::taking(SECOND);
    let layer = layer(MemoryStore::new(10)).ttl(Duration::ZERO).build().unwrap();
    let [one, other] = [(); 2].map(|()| layer.layer(loader.clone()));
    let ended = settled(vec![ask(&one, 1), ask(&other, 1)]).await;
    assert!(ended.iter().all(|(answer, _)| answer.as_ref().is_ok_and(|answer| *answer == 1)));
}

/// Two loaders behind one layer whose answers are of different types, under one key.
#[tokio::test(start_paused = true)]
async fn a_caller_never_joins_a_load_of_another_answer_type() {
    let layer = layer(MemoryStore::new(10)).build().unwrap();
    let numbers = layer.layer(Loader::taking(SECOND));
    let texts = layer.layer(service_fn(async |_: u64| Ok::<_, Refusal>("text".to_owned())));
    let number = ask(&numbers, 1);
    idle().await;
    assert_eq!(texts.clone().oneshot(1).await.unwrap(), "text");
    assert_eq!(number.await.unwrap().0.unwrap(), 1);
    assert_eq!(numbers.in_flight() + texts.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_never_joins_a_load_of_another_error_type() {
    let layer = layer(MemoryStore::new(10)).build().unwrap();
    let fails = layer.layer(service_fn(async |_: u64| {
        sleep(SECOND).await;
        Err::<usize, _>(std::io::Error::other("of another type"))
    }));
    assert!(fails.clone().oneshot(1).await.is_err());
    let first = tokio::spawn(fails.oneshot(1));
    idle().await;
    let (second, _) = ask(&layer.layer(Loader::new()), 1).await.unwrap();
    assert_eq!(second.unwrap(), 1);
    assert!(first.await.unwrap().unwrap_err().load().is_some());
}

/// An entry of the first type, whose bytes read as the second type as well.
#[tokio::test(start_paused = true)]
async fn an_answer_of_another_type_is_absent_even_if_its_bytes_would_do() {
    let layer = layer(MemoryStore::new(10)).build().unwrap();
    let signed = layer.layer(service_fn(async |_: u64| Ok::<_, Refusal>(1_i8)));
    let unsigned = layer.layer(service_fn(async |_: u64| Ok::<_, Refusal>(2_u8)));
    assert_eq!(signed.oneshot(1).await.unwrap(), 1);
    assert_eq!(unsigned.oneshot(1).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_another_type_is_loaded_again() {
    let layer = layer(MemoryStore::new(10)).build().unwrap();
    let texts = layer.layer(service_fn(async |_: u64| Ok::<_, Refusal>("text".to_owned())));
    texts.oneshot(1).await.unwrap();
    assert_eq!(answer(&layer.layer(Loader::new()), 1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_stand_on_another() {
    let loader = Loader::taking(SECOND);
    let [near, far] = [(); 2].map(|()| layer(MemoryStore::new(10)).build().unwrap());
    let cached = ServiceBuilder::new().layer(near).layer(far).service(loader.clone());
    let ended = join_all((0..10).map(|_| cached.clone().oneshot(1))).await;
    assert!(ended.into_iter().all(|answer| answer.is_ok_and(|answer| answer == 1)));
}

/// A codec that cannot be cloned, because it need not be.
#[derive(Debug)]
struct Single;

/// Finds out whether a type is `Clone`, without a bound.
struct Probe<T>(PhantomData<T>);

#[allow(dead_code, reason = "either this one is called or the other")]
impl<T: Clone> Probe<T> {
    fn is_clone(&self) -> bool {
        true
    }
}

#[allow(dead_code, reason = "either this one is called or the other")]
trait Otherwise {
    fn is_clone(&self) -> bool {
        false
    }
}

impl<T> Otherwise for Probe<T> {}

/// Both held it by `Arc`, and still required `Clone` of it, because their `Clone` was derived.
#[test]
fn a_service_can_be_cloned_whatever_its_codec() {
    assert!(Probe::<ReadThroughLayer<KeyOf, Single>>(PhantomData).is_clone());
    assert!(Probe::<Cached<Single>>(PhantomData).is_clone());
}

#[tokio::test(start_paused = true)]
async fn a_request_of_any_kind_will_do_and_an_error_that_becomes_a_boxed_one() {
    // The request is neither Clone, Sync nor printable. The error is no error type itself.
    struct Request(std::cell::Cell<u64>);
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), |request: &Request| {
        Key::of("item").with(request.0.get())
    })
    .build()
    .unwrap();
    let cached = layer.layer(service_fn(async |request: Request| match request.0.get() {
        0 => Err("zero"),
        number => Ok(number),
    }));
    assert!(matches!(cached.clone().oneshot(Request(0.into())).await, Err(Error::Load(_))));
    assert!(cached.oneshot(Request(3.into())).await.is_ok_and(|answer| answer == 3));
}

#[tokio::test(start_paused = true)]
async fn a_status_is_asked_for_in_a_stack_too() {
    let loader = Loader::new();
    let store = MemoryStore::new(10);
    let cached = cached(store, &loader);
    let with_status = service_fn(move |item: u64| {
        let answer = cached.clone().call(item).with_status();
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let Ok((answer, status)) = with_status.oneshot(1).await;
    assert_eq!((answer.unwrap(), status), (1, CacheStatus::Led { stored: true }));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "polled after it was ready")]
async fn a_request_that_was_answered_must_not_be_polled_again() {
    let mut cached = cached(MemoryStore::new(10), &Loader::new());
    answer(&cached, 1).await;
    let mut hit = task::spawn(cached.call(1));
    assert!(hit.poll().is_ready());
    let _ = hit.poll();
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_kept_is_shown_by_debug() {
    let store = MemoryStore::new(10);
    put(&store, 1, "31415926", JSON).await;
    let cached = cached(store.clone(), &Loader::new());
    let hit = cached.clone().call(1);
    let entry = store.peek(&key(1));
    let shown = format!("{store:?} {cached:?} {:?} {hit:?} {entry:?}", cached.handle());
    assert!(!shown.contains("31415926"), "{shown}");
}

fn is_sendable<T: Send>() {}
fn is_sendable_value<T: Send>(_: &T) {}
fn is_public<T: Send + Sync + Debug>() {}

#[test]
fn a_request_can_be_sent_to_another_thread() {
    is_sendable::<AnswerFuture<String, Refusal>>();
    let with_status = AnswerFuture::<String, Refusal>::with_status;
    _ = |request| is_sendable_value(&with_status(request));
    is_sendable::<Cached>();
}

#[test]
fn public_types_can_be_shared_and_shown() {
    is_public::<(Key, Digest, Json)>();
    is_public::<(MemoryStore, RedisStore, RedisOptions, RedisStats)>();
    is_public::<(ReadThroughLayer<KeyOf>, ReadThroughLayerBuilder<KeyOf>)>();
    is_public::<(Cached, Handle)>();
    is_public::<(CacheStatus, LoadLocation, BypassReason, Wait, WhenAbandoned)>();
    is_public::<(Error<Refusal>, CacheError, CacheErrorKind, ConfigError)>();
    is_public::<(StoreError, StoreErrorKind)>();
    is_public::<(store::Claim, store::Lease, store::Token, store::Watch, store::Watchers)>();
    is_public::<(store::Draft, store::Entry, store::Value, bellwether::Lifetimes)>();
    is_public::<(store::Accept, store::Acquire, store::Settled, store::Peek, store::Renew)>();
    is_public::<bellwether_test::suite::Violation>();
}
