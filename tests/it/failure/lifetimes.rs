//! After a failed load, the whole fleet waits for the cooldown before it loads again.

use std::io;
use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::store::{Accept, Acquire, Claim, Failure, Store};
use bellwether::{Cache, CacheErrorKind, CacheStatus, Error, MemoryStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::codec::{Faults, Text};
use bellwether_testkit::caches::promises::a_cooldown_ends_in_the_fleet;
use bellwether_testkit::caches::{
    MINUTE, SECOND, answer, ask, burst, idle, key, kind_of, lease, put, remembering_layer, settled,
    tasks, unprobed,
};
use bellwether_testkit::loaders::{End, Loader, Refusal};
use tokio::time::{Instant, sleep};
use tower::Layer;

use crate::support::store::{
    Faulty, Operation, UNREACHABLE, local, losing_push, processes, remote,
};

const PLACES: [fn(&MemoryStore) -> Faulty; 2] = [local, remote];

const MILLI: Duration = Duration::from_millis(1);

fn failing() -> Loader {
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    loader
}

/// The failure that the store remembers.
async fn remembered(store: &MemoryStore) -> Option<Failure> {
    let claim = Claim::new(key(1));
    match store.acquire(claim.clone(), SECOND, Accept::Fresh).await.unwrap() {
        Acquire::Failed { failure, .. } => Some(failure),
        _ => {
            store.abandon(claim).await.unwrap();
            None
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_load_fails_tries_once_per_cooldown() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(SECOND);
        loader.ends_by(End::Fail);
        let process = || unprobed(remembering_layer(place(&memory)));
        let fleet = [(); 4].map(|()| process().build().unwrap().layer(loader.clone()));
        let began = Instant::now();
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 250)).collect();
        assert!(settled(asked).await.iter().all(|(answer, _)| answer.is_err()));
        assert!(began.elapsed() < SECOND * 2 + SECOND / 10, "a convoy: {:?}", began.elapsed());
        for _ in 0..9 {
            let asked = fleet.iter().flat_map(|process| burst(process, 1, 250)).collect();
            assert!(settled(asked).await.iter().all(|(answer, _)| answer.is_err()));
            sleep(SECOND / 10).await;
        }
        assert_eq!(loader.loads(), 2);
        sleep(SECOND / 10).await;
        assert!(ask(&fleet[3], 1).await.unwrap().0.is_err());
        assert_eq!(loader.loads(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_caller_within_the_cooldown_gets_the_error_itself_in_its_process() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = failing();
        let here =
            unprobed(remembering_layer(place(&memory))).build().unwrap().layer(loader.clone());
        let there = remembering_layer(place(&memory)).build().unwrap().layer(loader.clone());
        assert!(ask(&here, 1).await.unwrap().0.is_err());
        let (first, _) = ask(&here, 1).await.unwrap();
        sleep(SECOND / 2).await;
        for (again, status) in settled(burst(&here, 1, 10)).await {
            let (Err(Error::Load(first)), Err(Error::Load(again))) = (&first, &again) else {
                panic!("{first:?} {again:?}");
            };
            assert!(first.ptr_eq(again));
            assert_eq!(status, CacheStatus::Failed);
        }
        let (elsewhere, _) = ask(&there, 1).await.unwrap();
        let kind = CacheErrorKind::LoadFailed(bellwether::FailureCause::Error);
        assert_eq!(kind_of(&elsewhere), kind);
        assert!(!elsewhere.unwrap_err().to_string().contains("refused"));
    }
}

#[tokio::test(start_paused = true)]
async fn other_processes_learn_the_type_of_an_error_and_not_its_text() {
    let memory = MemoryStore::new(10);
    let process = || remembering_layer(remote(&memory)).build().unwrap().layer(failing());
    let here = process();
    for _ in 0..2 {
        assert!(ask(&here, 1).await.unwrap().0.is_err());
    }
    let message = ask(&process(), 1).await.unwrap().0.unwrap_err().to_string();
    assert!(message.contains("loaders::Refusal)") && !message.contains("refused"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn other_processes_learn_the_kind_of_an_io_error_among_the_sources_of_an_error() {
    let memory = MemoryStore::new(10);
    let items = || {
        let builder = Cache::<u64, u64>::builder("item", remote(&memory)).ttl(MINUTE);
        builder.build().unwrap()
    };
    let load = async || Err(io::Error::new(io::ErrorKind::ConnectionRefused, "db7 of ada"));
    let here = items();
    for _ in 0..2 {
        assert!(here.get_or_load(1, load).await.is_err());
    }
    idle().await;
    let message = items().get_or_load(1, load).await.unwrap_err().to_string();
    assert!(message.contains("io::error::Error: connection refused)"), "{message}");
    assert!(!message.contains("ada"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn other_processes_get_the_layers_message_of_an_error() {
    let memory = MemoryStore::new(10);
    let process = || {
        let layer = remembering_layer(remote(&memory));
        layer.describe_failures(|Refusal(number): &Refusal| format!("tried {number} times"))
    };
    let here = process().build().unwrap().layer(failing());
    for _ in 0..2 {
        assert!(ask(&here, 1).await.unwrap().0.is_err());
    }
    let (elsewhere, _) = ask(&process().build().unwrap().layer(failing()), 1).await.unwrap();
    let message = elsewhere.unwrap_err().to_string();
    assert!(message.contains("tried 2 times") && message.contains("item#"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_message_of_an_error_is_bounded_and_a_panic_in_it_is_survived() {
    let long = MemoryStore::new(10);
    let layer = remembering_layer(long.clone())
        .describe_failures(|_: &Refusal| "ü".repeat(1_000))
        .build()
        .unwrap();
    for _ in 0..2 {
        assert!(ask(&layer.layer(failing()), 1).await.unwrap().0.is_err());
    }
    idle().await;
    assert_eq!(remembered(&long).await.expect("a failure").message.len(), 256);
    let broken = MemoryStore::new(10);
    let layer = remembering_layer(broken.clone())
        .describe_failures(|_: &Refusal| -> String { panic!("scripted") })
        .build()
        .unwrap();
    for _ in 0..2 {
        assert!(ask(&layer.layer(failing()), 1).await.unwrap().0.unwrap_err().load().is_some());
    }
    idle().await;
    assert_eq!(&*remembered(&broken).await.expect("a failure").message, "");
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_panic_is_never_stored() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    loader.ends_by(End::Panic);
    let process = || {
        let layer = remembering_layer(remote(&memory));
        layer.describe_failures(|_: &Refusal| "said".into()).build().unwrap().layer(loader.clone())
    };
    for _ in 0..3 {
        let message = ask(&process(), 1).await.unwrap().0.unwrap_err().to_string();
        assert!(message.contains("panicked") && !message.contains("scripted"), "{message}");
    }
    assert_eq!((loader.loads(), &*remembered(&memory).await.unwrap().message), (2, ""));
}

#[tokio::test(start_paused = true)]
async fn cooldowns_double_until_a_load_succeeds() {
    let memory = MemoryStore::new(10);
    let loader = failing();
    let layer = || unprobed(remembering_layer(remote(&memory)).ttl(MILLI).max_waiters(9));
    let fleet = [(); 2].map(|()| layer().build().unwrap().layer(loader.clone()));
    assert!(ask(&fleet[1], 1).await.unwrap().0.is_err());
    for (turn, seconds) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
        assert!(ask(&fleet[turn % 2], 1).await.unwrap().0.is_err());
        idle().await;
        let failure = remembered(&memory).await.expect("a failure");
        assert_eq!((loader.loads(), failure.window), (turn + 2, SECOND * seconds));
        sleep(failure.window).await;
    }
    loader.ends_by(End::Answer);
    answer(&fleet[1], 1).await;
    idle().await;
    loader.ends_by(End::Fail);
    for process in &fleet {
        assert!(ask(process, 1).await.unwrap().0.is_err());
        idle().await;
    }
    assert_eq!(remembered(&memory).await.expect("a failure").window, SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_ends_the_cooldown_in_the_fleet_and_in_the_process() {
    for place in PLACES {
        let memory = MemoryStore::new(100);
        a_cooldown_ends_in_the_fleet(&processes(place, &memory), MILLI * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flight_stays_in_cooldown_for_a_second_at_most_and_leaves_nothing() {
    for place in PLACES {
        let layer = remembering_layer(losing_push(place(&MemoryStore::new(10))));
        let cached = layer.failure_windows(MINUTE, MINUTE).build().unwrap().layer(failing());
        let before = tasks();
        settled(burst(&cached, 1, 10)).await;
        settled(burst(&cached, 1, 10)).await;
        assert_eq!(cached.in_flight(), 1);
        sleep(SECOND + MILLI * 2).await;
        assert_eq!((cached.in_flight(), tasks()), (0, before));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_counts_as_a_failure_is_given_to_its_waiters_and_not_tried_again() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(SECOND);
        let process =
            || remembering_layer(place(&memory)).classify(|_: &usize| Cacheability::Failure);
        let here = process().build().unwrap().layer(loader.clone());
        let there = process().build().unwrap().layer(loader.clone());
        let ended = settled(burst(&here, 1, 10)).await;
        let mut answers: Vec<_> = ended.into_iter().map(|(answer, _)| answer.unwrap()).collect();
        answers.sort_unstable();
        assert_eq!(answers, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        idle().await;
        let (answer, status) = ask(&here, 1).await.unwrap();
        assert_eq!(answer.unwrap(), 2);
        assert!(matches!(status, CacheStatus::Collapsed { .. }), "{status:?}");
        assert!(ask(&there, 1).await.unwrap().0.unwrap_err().cache().is_some());
        assert_eq!((loader.loads(), memory.len()), (2, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_under_a_lost_lease_is_not_remembered_in_the_fleet() {
    let memory = MemoryStore::new(10);
    let loader = Loader::gated();
    loader.ends_by(End::Fail);
    let store = remote(&memory);
    store.on(Operation::Renew).fail(UNREACHABLE);
    let late = remembering_layer(store).lease(SECOND).build().unwrap().layer(loader.clone());
    let asked = ask(&late, 1);
    loader.has_begun(1).await;
    sleep(SECOND * 2).await;
    memory.abandon(lease(&memory, 1, MINUTE).await.claim).await.unwrap();
    loader.let_go(1);
    assert!(asked.await.unwrap().0.is_err());
    idle().await;
    assert_eq!(remembered(&memory).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_entry_is_replaced_by_one_load_in_the_fleet() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(SECOND);
        put(&memory, 1, "not a number", Text::CODEC).await;
        let process = || remembering_layer(place(&memory)).codec(Text::new(Faults::None));
        let fleet = [(); 4].map(|()| process().build().unwrap().layer(loader.clone()));
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 25)).collect();
        assert!(settled(asked).await.iter().all(|(answer, _)| *answer.as_ref().unwrap() == 1));
        assert_eq!(loader.loads(), 1);
    }
}

/// Its loads need no lease, so it is this process alone that knows of the failure.
#[tokio::test(start_paused = true)]
async fn a_failed_load_without_a_ttl_is_not_tried_again_within_the_cooldown() {
    for place in PLACES {
        let loader = Loader::new();
        let layer = unprobed(remembering_layer(place(&MemoryStore::new(10))));
        let cached =
            layer.codec(Text::new(Faults::FailsToEncode)).build().unwrap().layer(loader.clone());
        answer(&cached, 1).await;
        loader.ends_by(End::Fail);
        for _ in 0..9 {
            let ended = settled(burst(&cached, 1, 10)).await;
            assert!(ended.iter().all(|(answer, _)| answer.is_err()));
            sleep(SECOND / 10).await;
        }
        assert_eq!(loader.loads(), 3);
    }
}
