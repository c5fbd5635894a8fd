//! Callers that go away on threads that really run at once.

use std::time::Duration;

use bellwether::{MemoryStore, WhenAbandoned};
use bellwether_testkit::caches::{Answered, Cached, ask, layer};
use bellwether_testkit::loaders::Loader;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tower::Layer;

use crate::support::store::local;

const ROUNDS: u64 = 300;

fn fleet(loader: &Loader, policy: WhenAbandoned) -> [Cached; 2] {
    let store = MemoryStore::new(1_000);
    let stores = [local(&store), local(&store)];
    stores.map(|store| layer(store).when_abandoned(policy).build().unwrap().layer(loader.clone()))
}

/// Three of four callers are dropped at any point; the others are answered.
async fn round(fleet: &[Cached], item: u64) {
    let asked: Vec<_> = (0..32).map(|caller| ask(&fleet[caller % fleet.len()], item)).collect();
    let (stay, go): (Vec<_>, Vec<_>) =
        asked.into_iter().enumerate().partition(|(caller, _)| caller % 4 == 0);
    for (caller, asked) in go {
        if caller % 3 == 0 {
            yield_now().await;
        }
        asked.abort();
    }
    for (_, asked) in stay {
        answered(asked).await;
    }
}

async fn answered(asked: JoinHandle<Answered>) {
    let ended = timeout(Duration::from_secs(20), asked).await.expect("no caller is stuck");
    ended.expect("no panic").0.expect("an answer");
}

async fn until_nothing_is_left(fleet: &[Cached]) {
    let empty = async {
        while fleet.iter().any(|process| process.in_flight() > 0) {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), empty).await.expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_callers_that_stay_are_answered_by_one_load_per_key() {
    let loader = Loader::pondering();
    let fleet = fleet(&loader, WhenAbandoned::Finish);
    for item in 0..ROUNDS {
        round(&fleet, item).await;
    }
    until_nothing_is_left(&fleet).await;
    assert_eq!(loader.loads() as u64, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_callers_that_stay_are_answered_though_loads_are_cancelled() {
    let loader = Loader::pondering();
    let fleet = fleet(&loader, WhenAbandoned::Cancel);
    for item in 0..ROUNDS {
        round(&fleet, item).await;
    }
    until_nothing_is_left(&fleet).await;
    assert_eq!(loader.running(), 0);
}
