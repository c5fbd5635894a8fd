//! A caller can be dropped after each of its polls, so each of its await points is tried.

use bellwether::{CacheStatus, MemoryStore, Wait, WhenAbandoned};
use bellwether_testkit::caches::{
    Cached, KeyOf, MINUTE, answers, burst, idle, is_leased, layer, lease, settled, tasks,
};
use bellwether_testkit::loaders::Loader;
use tokio::task::yield_now;
use tower::{Layer, Service};

use crate::support::store::{Faulty, local, remote};

type Layered = bellwether::service::ReadThroughLayerBuilder<KeyOf>;

/// The places where a store can be.
const PLACES: [fn(&MemoryStore) -> Faulty; 2] = [local, remote];

/// A process with one caller that will be dropped, and its store and loader.
struct Scene {
    store: MemoryStore,
    loader: Loader,
    cached: Cached,
}

impl Scene {
    fn new(place: fn(&MemoryStore) -> Faulty, knobs: impl Fn(Layered) -> Layered) -> Self {
        let store = MemoryStore::new(10);
        let loader = Loader::pondering();
        let cached = knobs(layer(place(&store))).build().unwrap().layer(loader.clone());
        Self { store, loader, cached }
    }

    /// A request that is polled as often, as everything else runs, and then dropped. Says whether
    /// it was answered before.
    async fn drop_one_after(&self, polls: usize) -> bool {
        let mut request = tokio_test::task::spawn(self.cached.clone().call(1));
        for _ in 0..polls {
            if request.poll().is_ready() {
                return true;
            }
            yield_now().await;
        }
        false
    }

    async fn assert_that_nothing_is_left(&self, context: &str) {
        idle().await;
        assert_eq!((self.cached.in_flight(), tasks()), (0, 0), "{context}");
        assert_eq!(self.loader.running(), 0, "{context}");
        assert!(!is_leased(&self.store, 1).await, "{context}");
    }
}

/// Runs `scene` with 0 polls before the drop, with 1, with 2, until the caller is answered before
/// it can be dropped.
async fn at_every_poll(scene: impl AsyncFn(usize) -> bool) {
    for polls in 0..100 {
        if scene(polls).await {
            assert!(polls > 1, "answered at the first poll: there was nothing to try");
            return;
        }
    }
    panic!("never answered");
}

#[tokio::test(start_paused = true)]
async fn the_first_of_many_can_be_dropped_at_every_poll() {
    for place in PLACES {
        at_every_poll(async |polls| {
            let scene = Scene::new(place, |layer| layer);
            let answered = scene.drop_one_after(polls).await;
            assert_eq!(answers(burst(&scene.cached, 1, 9)).await, [1; 9], "{polls} polls");
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
            answered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_of_many_can_be_dropped_at_every_poll_while_they_wait() {
    for place in PLACES {
        at_every_poll(async |polls| {
            let scene = Scene::new(place, |layer| layer);
            let mut first = tokio_test::task::spawn(scene.cached.clone().call(1));
            let mut answered = polls > 0 && first.poll().is_ready();
            let others = burst(&scene.cached, 1, 9);
            for _ in 1..polls {
                answered = answered || first.poll().is_ready();
                yield_now().await;
            }
            drop(first);
            assert_eq!(answers(others).await, [1; 9], "{polls} polls");
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
            answered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_one_can_be_dropped_at_every_poll() {
    for place in PLACES {
        at_every_poll(async |polls| {
            let scene = Scene::new(place, |layer| layer);
            let others = burst(&scene.cached, 1, 9);
            yield_now().await;
            let answered = scene.drop_one_after(polls).await;
            assert_eq!(answers(others).await, [1; 9], "{polls} polls");
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
            answered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_only_one_can_be_dropped_at_every_poll_and_what_it_began_is_finished() {
    for place in PLACES {
        at_every_poll(async |polls| {
            let scene = Scene::new(place, |layer| layer);
            let answered = scene.drop_one_after(polls).await;
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
            assert_eq!(scene.store.len(), scene.loader.loads(), "what was loaded is kept");
            answered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_only_one_can_be_dropped_at_every_poll_and_what_it_began_is_cancelled() {
    for place in PLACES {
        at_every_poll(async |polls| {
            let scene = Scene::new(place, |layer| layer.when_abandoned(WhenAbandoned::Cancel));
            let answered = scene.drop_one_after(polls).await;
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
            answered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_another_process_can_be_dropped_at_every_poll() {
    for place in PLACES {
        for polls in 0..12 {
            let scene = Scene::new(place, |layer| layer);
            let held = lease(&scene.store, 1, MINUTE).await;
            let answered = scene.drop_one_after(polls).await;
            assert!(!answered, "another process has the lease");
            let others = burst(&scene.cached, 1, 9);
            yield_now().await;
            bellwether_test::StoreExt::abandon(&scene.store, held.claim).await.unwrap();
            assert_eq!(answers(others).await, [1; 9], "{polls} polls");
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_uncached_load_can_be_dropped_at_every_poll() {
    for place in PLACES {
        at_every_poll(async |polls| {
            let scene = Scene::new(place, |layer| layer.wait(Wait::fail_fast().then_load()));
            let held = lease(&scene.store, 1, MINUTE).await;
            let answered = scene.drop_one_after(polls).await;
            let settled = settled(burst(&scene.cached, 1, 9)).await;
            assert!(settled.iter().all(|(answer, _)| answer.is_ok()), "{polls} polls");
            assert!(settled.iter().all(|(_, status)| *status != CacheStatus::Failed));
            assert_eq!(scene.loader.most_at_once(), 1, "{polls} polls");
            bellwether_test::StoreExt::abandon(&scene.store, held.claim).await.unwrap();
            scene.assert_that_nothing_is_left(&format!("{polls} polls")).await;
            answered
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn all_can_be_dropped_at_every_poll() {
    for place in PLACES {
        for policy in [WhenAbandoned::Finish, WhenAbandoned::Cancel] {
            at_every_poll(async |polls| {
                let scene = Scene::new(place, |layer| layer.when_abandoned(policy));
                let call = || tokio_test::task::spawn(scene.cached.clone().call(1));
                let mut requests: Vec<_> = (0..3).map(|_| call()).collect();
                for _ in 0..polls {
                    requests.retain_mut(|request| request.poll().is_pending());
                    yield_now().await;
                }
                let answered = requests.is_empty();
                drop(requests);
                scene.assert_that_nothing_is_left(&format!("{policy:?}, {polls} polls")).await;
                answered
            })
            .await;
        }
    }
}
