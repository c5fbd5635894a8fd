//! A forced refresh loads although there is a fresh entry.

use bellwether::service::{KeyRequest, ReadThrough};
use bellwether::store::{Accept, Acquire, Claim, Store};
use bellwether::{CacheStatus, MemoryStore, ReadThroughLayer, StaleReason};
use bellwether_testkit::caches::{
    Answered, MINUTE, NO_TIME, SECOND, answers, commit, idle, key, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use super::{PLACES, stale_if_error, stale_while_revalidating};

type Asking = ReadThrough<Loader, fn(&u64) -> KeyRequest>;

/// Requests from 1,000 on bypass stored entries.
const FORCED: u64 = 1_000;

fn asking(store: impl Store, loader: &Loader) -> Asking {
    let ask_of: fn(&u64) -> KeyRequest = |item| match item.checked_sub(FORCED) {
        Some(item) => KeyRequest::of(key(item)).force_refresh(),
        None => KeyRequest::of(key(*item)),
    };
    let layer = ReadThroughLayer::builder(store, ask_of)
        .ttl(MINUTE)
        .jitter(0.0)
        .build()
        .expect("no jitter");
    layer.layer(loader.clone())
}

fn ask(cached: &Asking, item: u64) -> JoinHandle<Answered> {
    tokio::spawn(cached.clone().call(item).with_status())
}

fn burst(cached: &Asking, item: u64, callers: usize) -> Vec<JoinHandle<Answered>> {
    (0..callers).map(|_| ask(cached, item)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_loads_though_there_is_something_fresh() {
    for place in PLACES {
        let cached = asking(place(&MemoryStore::new(10)), &Loader::new());
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
        let (answer, status) = ask(&cached, 1 + FORCED).await.unwrap();
        assert_eq!((answer.unwrap(), status), (2, CacheStatus::Led { stored: true }));
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
    }
}

#[tokio::test(start_paused = true)]
async fn forced_refreshes_that_meet_are_one_load_in_the_fleet() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(SECOND * 2);
        let fleet = [(); 4].map(|()| asking(place(&memory), &loader));
        assert_eq!(answers(vec![ask(&fleet[0], 1)]).await, [1]);
        let asked = fleet.iter().flat_map(|process| burst(process, 1 + FORCED, 25)).collect();
        assert_eq!(answers(asked).await, [2; 100]);
        assert_eq!(loader.loads(), 2);
    }
}

/// It may ask several times, but is never answered by the entry from before.
#[tokio::test(start_paused = true)]
async fn a_forced_refresh_waits_for_the_load_of_another_process() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let cached = asking(place(&memory).without_push(), &Loader::new());
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
        let acquired = memory.acquire(Claim::new(key(1)), MINUTE, Accept::Nothing).await.unwrap();
        let Acquire::Lead { lease, .. } = acquired else { panic!("{acquired:?}") };
        let forced = ask(&cached, 1 + FORCED);
        sleep(SECOND * 2).await;
        assert!(!forced.is_finished());
        commit(&memory, lease, "42").await;
        assert_eq!(answers(vec![forced]).await, [42]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_given_to_others_while_a_forced_refresh_loads() {
    for place in PLACES {
        let loader = Loader::gated();
        let cached = asking(place(&MemoryStore::new(10)), &loader);
        loader.let_go(1);
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
        let _forced = ask(&cached, 1 + FORCED);
        loader.has_begun(2).await;
        let began = Instant::now();
        assert_eq!(answers(burst(&cached, 1, 100)).await, [1; 100]);
        assert_eq!(began.elapsed(), NO_TIME);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_is_not_given_what_is_stale() {
    for place in PLACES {
        let cached = asking(place(&stale_while_revalidating().await), &Loader::taking(SECOND));
        assert_eq!(answers(burst(&cached, 1 + FORCED, 10)).await, [1; 10]);
    }
}

async fn forced_on_a_failing_loader(memory: MemoryStore, cached: &Asking) {
    for (answer, status) in settled(burst(cached, 1 + FORCED, 10)).await {
        assert!(answer.is_err_and(|error| error.load().is_some()));
        assert_eq!(status, CacheStatus::Failed);
    }
    drop(memory);
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_that_fails_is_an_error_and_what_is_kept_stays() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::new();
        let cached = asking(place(&memory), &loader);
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
        loader.ends_by(End::Fail);
        forced_on_a_failing_loader(memory, &cached).await;
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_that_fails_is_an_error_though_something_is_stale() {
    for place in PLACES {
        let memory = stale_if_error().await;
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let cached = asking(place(&memory), &loader);
        forced_on_a_failing_loader(memory, &cached).await;
        let (_, status) = ask(&cached, 1).await.unwrap();
        assert!(
            matches!(status, CacheStatus::Stale { why: StaleReason::LoadFailed, .. }),
            "{status:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_that_fails_starts_no_cooldown() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::new();
        let fleet = [(); 2].map(|()| asking(place(&memory), &loader));
        loader.ends_by(End::Fail);
        for _ in 0..5 {
            settled(vec![ask(&fleet[0], 1 + FORCED)]).await;
            idle().await;
        }
        loader.ends_by(End::Answer);
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 10)).collect();
        assert_eq!(answers(asked).await, [6; 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_tries_again_though_a_load_failed_a_moment_ago() {
    for place in PLACES {
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let cached = asking(place(&MemoryStore::new(10)), &loader);
        settled(vec![ask(&cached, 1)]).await;
        loader.ends_by(End::Answer);
        assert_eq!(answers(vec![ask(&cached, 1 + FORCED)]).await, [2]);
        idle().await;
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
    }
}
