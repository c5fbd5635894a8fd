//! A request that breaks its own load, a source that is down, and what other callers get.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::service::ReadThroughLayerBuilder;
use bellwether::{Error, Key, MemoryStore, ReadThroughLayer, Wait};
use bellwether_testkit::caches::{MINUTE, NO_TIME, SECOND};
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer, Service, service_fn, util::BoxCloneSyncService};

use crate::support::store::{Faulty, UNREACHABLE, local, remote};

const PLACES: [fn(&MemoryStore) -> Faulty; 2] = [local, remote];
const MILLI: Duration = Duration::from_millis(1);

type Layered = ReadThroughLayerBuilder<fn(&Request) -> Key>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Good,
    /// Its load fails.
    Bad,
    /// Its load panics.
    Fatal,
}

/// A source: when it was asked, how long it takes, and whether it is down for every request.
#[derive(Clone, Debug)]
struct Source(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    asked: Mutex<Vec<Duration>>,
    takes: Mutex<Duration>,
    is_down: AtomicBool,
}

type Failure = String;

type Caching = BoxCloneSyncService<Request, usize, Error<Failure>>;

impl Source {
    fn taking(takes: Duration) -> Self {
        let (asked, is_down) = (Mutex::default(), AtomicBool::new(false));
        let takes = Mutex::new(takes);
        Self(Arc::new(Inner { began: Instant::now(), asked, takes, is_down }))
    }

    fn takes(&self, takes: Duration) {
        *self.0.takes.lock().unwrap() = takes;
    }

    fn is_down(&self, is_down: bool) {
        self.0.is_down.store(is_down, SeqCst);
    }

    /// When loads began.
    fn loads(&self) -> Vec<Duration> {
        self.0.asked.lock().unwrap().clone()
    }

    fn load(&self, request: Request) -> BoxFuture<'static, Result<usize, Failure>> {
        let source = self.clone();
        let number = {
            let mut asked = source.0.asked.lock().unwrap();
            asked.push(source.0.began.elapsed());
            asked.len()
        };
        let takes = *self.0.takes.lock().unwrap();
        Box::pin(async move {
            sleep(takes).await;
            match request {
                Request::Fatal => panic!("scripted"),
                Request::Good if !source.0.is_down.load(SeqCst) => Ok(number),
                Request::Good | Request::Bad => Err(format!("load {number} failed")),
            }
        })
    }

    /// A process over a store: of one key, whose answers are kept for a time.
    fn process(&self, store: Faulty, ttl: Duration) -> Caching {
        self.process_with(store, ttl, |layer| layer)
    }

    fn process_with(
        &self,
        store: Faulty,
        ttl: Duration,
        with: impl Fn(Layered) -> Layered,
    ) -> Caching {
        let source = self.clone();
        let key_of: fn(&Request) -> Key = |_| Key::of("item");
        let layer = ReadThroughLayer::builder(store, key_of).ttl(ttl).wait(Wait::at_most(MINUTE));
        let load = service_fn(move |request| source.load(request));
        BoxCloneSyncService::new(with(layer).build().unwrap().layer(load))
    }
}

type Asked = JoinHandle<(Result<usize, Error<Failure>>, Duration)>;

/// A request, and how long it took.
fn ask(process: &Caching, request: Request) -> Asked {
    let mut process = process.clone();
    tokio::spawn(async move {
        let began = Instant::now();
        (process.call(request).await, began.elapsed())
    })
}

async fn all(asked: Vec<Asked>) -> Vec<(Result<usize, Error<Failure>>, Duration)> {
    let mut ended = Vec::new();
    for asked in asked {
        ended.push(asked.await.expect("no panic"));
    }
    ended
}

/// Twenty good requests a second, in two processes, and two bad ones, for half a minute.
async fn bad_among_good(place: fn(&MemoryStore) -> Faulty, bad: Request, takes: Duration) {
    let (memory, source) = (MemoryStore::new(10), Source::taking(takes));
    let fleet = [(); 2].map(|()| source.process(place(&memory), NO_TIME));
    let mut good = Vec::new();
    for tick in 0..600 {
        if tick % 10 == 0 {
            ask(&fleet[tick / 10 % 2], bad);
        }
        good.push(ask(&fleet[tick % 2], Request::Good));
        sleep(MILLI * 50).await;
    }
    let denied: Vec<_> =
        all(good).await.into_iter().filter(|(answer, _)| answer.is_err()).collect();
    assert!(denied.is_empty(), "{} of 600 denied ({bad:?}): {:?}", denied.len(), denied[0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_breaks_its_load_denies_no_other_request() {
    for place in PLACES {
        for bad in [Request::Bad, Request::Fatal] {
            for takes in [MILLI, MILLI * 20, MILLI * 200] {
                bad_among_good(place, bad, takes).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_failure_of_one_request_is_given_to_none_of_its_waiters() {
    for place in PLACES {
        for bad in [Request::Bad, Request::Fatal] {
            let (memory, source) = (MemoryStore::new(10), Source::taking(SECOND));
            let fleet = [(); 2].map(|()| source.process(place(&memory), MINUTE));
            let attacker = ask(&fleet[0], bad);
            sleep(MILLI * 10).await;
            let victims = (0..47).map(|nth| ask(&fleet[nth % 2], Request::Good)).collect();
            let (answer, after) = attacker.await.unwrap();
            assert!(answer.is_err() && after == SECOND, "{answer:?} after {after:?}");
            for (answer, after) in all(victims).await {
                assert_eq!(answer.unwrap(), 2);
                assert!(after < SECOND * 2 + MILLI * 300, "{after:?}");
            }
            assert_eq!(source.loads().len(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_load_that_fails_is_given_to_none_of_its_waiters() {
    let (memory, source) = (MemoryStore::new(10), Source::taking(SECOND));
    let load = {
        let source = source.clone();
        service_fn(move |request| source.load(request))
    };
    let forced = |_: &Request| bellwether::service::KeyRequest::of(Key::of("item")).force_refresh();
    let process = ReadThroughLayer::builder(memory, forced).build().unwrap().layer(load);
    let ask = |request| {
        let mut process = process.clone();
        tokio::spawn(async move { process.call(request).await })
    };
    let attacker = ask(Request::Bad);
    sleep(MILLI).await;
    let victims: Vec<_> = (0..10).map(|_| ask(Request::Good)).collect();
    assert!(attacker.await.unwrap().is_err());
    for victim in victims {
        assert_eq!(victim.await.unwrap().unwrap(), 2);
    }
    source.is_down(true);
    let crowd: Vec<_> = (0..100).map(|_| ask(Request::Good)).collect();
    for asked in crowd {
        assert!(asked.await.unwrap().is_err());
    }
    assert_eq!(source.loads().len(), 4, "a convoy");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_once_a_second_request_has_failed_too() {
    for place in PLACES {
        let (memory, source) = (MemoryStore::new(10), Source::taking(SECOND));
        source.is_down(true);
        let fleet = [(); 4].map(|()| source.process(place(&memory), MINUTE));
        let asked = (0..200).map(|nth| ask(&fleet[nth % 4], Request::Good)).collect();
        for (answer, after) in all(asked).await {
            assert!(answer.is_err());
            assert!(after < SECOND * 2 + MILLI * 300, "a convoy: {after:?}");
        }
        assert_eq!(source.loads().len(), 2);
    }
}

/// The shortest time between any two loads after the second.
const PROBES: [u64; 5] = [100, 200, 400, 800, 1_000];

#[tokio::test(start_paused = true)]
async fn a_dead_source_sees_one_probe_per_interval() {
    for place in PLACES {
        let (memory, source) = (MemoryStore::new(10), Source::taking(MILLI));
        source.is_down(true);
        let fleet = [(); 4].map(|()| source.process(place(&memory), MINUTE));
        let mut asked = Vec::new();
        for tick in 0..2_000 {
            asked.push(ask(&fleet[tick % 4], Request::Good));
            sleep(MILLI * 10).await;
        }
        for (answer, after) in all(asked).await {
            assert!(answer.is_err() && after < MILLI * 20, "{answer:?} after {after:?}");
        }
        let loads = source.loads();
        let gaps: Vec<_> = loads.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
        for (nth, gap) in gaps.iter().enumerate() {
            let least = Duration::from_millis(PROBES[nth.min(PROBES.len() - 1)]);
            assert!(*gap >= least && *gap < least + MILLI * 30, "probe {nth} after {gap:?}");
        }
        assert!((20..=26).contains(&loads.len()), "{} loads in 20 s", loads.len());
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_the_first_answer_comes_within_two_seconds() {
    for place in PLACES {
        let (memory, source) = (MemoryStore::new(10), Source::taking(MILLI * 20));
        let fleet = [(); 4].map(|()| source.process(place(&memory), NO_TIME));
        source.is_down(true);
        let mut tick = 0;
        let ends = Instant::now() + SECOND * 20;
        while Instant::now() < ends {
            tick += 1;
            ask(&fleet[tick % 4], Request::Good);
            sleep(MILLI * 50).await;
        }
        source.is_down(false);
        let back = Instant::now();
        loop {
            tick += 1;
            let asked = ask(&fleet[tick % 4], Request::Good);
            if asked.await.unwrap().0.is_ok() {
                break;
            }
            sleep(MILLI * 50).await;
        }
        assert!(back.elapsed() < SECOND * 2, "{:?} after it was back", back.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_ends_the_cooldown_for_the_fleet() {
    for place in PLACES {
        let (memory, source) = (MemoryStore::new(10), Source::taking(MILLI));
        let fleet = [(); 4].map(|()| source.process(place(&memory), NO_TIME));
        source.is_down(true);
        for tick in 0..100 {
            ask(&fleet[tick % 4], Request::Good);
            sleep(MILLI * 100).await;
        }
        source.is_down(false);
        sleep(SECOND).await;
        ask(&fleet[0], Request::Good).await.unwrap().0.unwrap();
        let asked = fleet.iter().map(|process| ask(process, Request::Good)).collect();
        for (answer, after) in all(asked).await {
            assert!(answer.is_ok() && after < MILLI * 300, "{answer:?} after {after:?}");
        }
        assert!(ask(&fleet[0], Request::Bad).await.unwrap().0.is_err());
        assert!(ask(&fleet[1], Request::Good).await.unwrap().0.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn no_caller_waits_for_a_probe_that_hangs() {
    for place in PLACES {
        let (memory, source) = (MemoryStore::new(10), Source::taking(MILLI));
        let fleet = [(); 4].map(|()| source.process(place(&memory), MINUTE));
        source.is_down(true);
        for _ in 0..2 {
            assert!(ask(&fleet[0], Request::Good).await.unwrap().0.is_err());
        }
        sleep(MILLI * 150).await;
        source.takes(SECOND * 29);
        let probe = ask(&fleet[1], Request::Good);
        sleep(MILLI * 5).await;
        let until = Instant::now() + SECOND * 28;
        let mut tick = 0;
        while Instant::now() < until {
            let (answer, after) = ask(&fleet[tick % 4], Request::Good).await.unwrap();
            assert!(answer.is_err() && after < MILLI * 20, "{answer:?} after {after:?}");
            sleep(MILLI * 170).await;
            tick += 1;
        }
        assert_eq!(source.loads().len(), 3);
        source.is_down(false);
        assert_eq!(probe.await.unwrap().0.unwrap(), 3);
        assert_eq!(ask(&fleet[2], Request::Good).await.unwrap().0.unwrap(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_store_down_a_process_probes_by_itself() {
    let (memory, source) = (MemoryStore::new(10), Source::taking(MILLI));
    let store = remote(&memory);
    store.on_any().fail(UNREACHABLE);
    let process = source.process(store, MINUTE);
    source.is_down(true);
    let began = Instant::now();
    for tick in 0..100 {
        let (answer, after) = ask(&process, Request::Good).await.unwrap();
        assert!(answer.is_err() && after < MILLI * 20, "{answer:?} after {after:?}");
        sleep_until(began + MILLI * 100 * (tick + 1)).await;
    }
    assert!((10..=16).contains(&source.loads().len()), "{:?}", source.loads());
    source.is_down(false);
    sleep(SECOND).await;
    assert!(ask(&process, Request::Good).await.unwrap().0.is_ok());
    assert!(ask(&process, Request::Good).await.unwrap().0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_source_itself_needs_no_second_witness() {
    for place in PLACES {
        let (memory, source) = (MemoryStore::new(10), Source::taking(MILLI));
        source.is_down(true);
        let settings = |it: Layered| it.classify_any_error(|why| super::class_of(&why.to_string()));
        let fleet = [(); 2].map(|()| source.process_with(place(&memory), MINUTE, settings));
        let asked = (0..20).map(|nth| ask(&fleet[nth % 2], Request::Good)).collect();
        assert!(all(asked).await.iter().all(|(answer, _)| answer.is_err()));
        assert_eq!(source.loads().len(), 1);
    }
}
