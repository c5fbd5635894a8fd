//! Answers that are not stored, or have a ttl of their own.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::{BypassReason, CacheStatus, MemoryStore};
use bellwether_testkit::caches::codec::{Faults, Text};
use bellwether_testkit::caches::{
    MINUTE, SECOND, answer, answers, ask, burst, idle, layer, settled,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::store::{Faulty, local, remote};

const LOAD: Duration = Duration::from_millis(100);

const PLACES: [fn(&MemoryStore) -> Faulty; 2] = [local, remote];

/// Every caller has an answer of its own.
fn are_all_different(mut answers: Vec<usize>) -> bool {
    let callers = answers.len();
    answers.sort_unstable();
    answers.dedup();
    answers.len() == callers
}

#[tokio::test(start_paused = true)]
async fn private_answers_delay_no_caller_and_are_given_to_no_other() {
    for (place, processes) in PLACES.into_iter().flat_map(|place| [1, 5].map(|n| (place, n))) {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(LOAD);
        let process = || layer(place(&memory)).classify(|_: &usize| Cacheability::PrivateKey);
        let fleet: Vec<_> =
            (0..processes).map(|_| process().build().unwrap().layer(loader.clone())).collect();
        let began = Instant::now();
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 100 / processes)).collect();
        assert!(are_all_different(answers(asked).await));
        assert!(began.elapsed() <= LOAD * 4, "it took {:?}", began.elapsed());
        // For a while all callers load at once.
        let began = Instant::now();
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 10)).collect();
        let ended = settled(asked).await;
        assert!(ended.iter().all(|(_, how)| *how == CacheStatus::Bypass(BypassReason::Private)));
        assert!(began.elapsed() < LOAD * 2, "it took {:?}", began.elapsed());
        assert!(fleet.iter().all(|process| process.in_flight() == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_while_a_key_of_private_answers_is_shared_again() {
    for place in PLACES {
        let loader = Loader::taking(LOAD);
        let layer = layer(place(&MemoryStore::new(10))).private_for(SECOND);
        let first_ones = |number: &usize| match number {
            ..=20 => Cacheability::PrivateKey,
            _ => Cacheability::Keep,
        };
        let cached = layer.classify(first_ones).build().unwrap().layer(loader.clone());
        answers(burst(&cached, 1, 10)).await;
        sleep(SECOND - LOAD).await;
        assert!(are_all_different(answers(burst(&cached, 1, 10)).await));
        sleep(SECOND).await;
        assert_eq!(answers(burst(&cached, 1, 10)).await, [21; 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_ones_own_says_nothing_of_the_answers_of_others() {
    for place in PLACES {
        let loader = Loader::taking(LOAD);
        let first_only = |number: &usize| match number {
            1 => Cacheability::PrivateOnce,
            _ => Cacheability::Keep,
        };
        let layer = layer(place(&MemoryStore::new(10))).classify(first_only).build().unwrap();
        let cached = layer.layer(loader.clone());
        assert!(are_all_different(answers(burst(&cached, 1, 10)).await));
        assert_eq!(answers(burst(&cached, 1, 10)).await, [11; 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_answer_whose_caller_has_left_is_given_to_no_other() {
    for place in PLACES {
        let loader = Loader::gated();
        let layer =
            layer(place(&MemoryStore::new(10))).classify(|_: &usize| Cacheability::PrivateKey);
        let cached = layer.build().unwrap().layer(loader.clone());
        let leaver = ask(&cached, 1);
        loader.has_begun(1).await;
        let others = burst(&cached, 1, 10);
        idle().await;
        leaver.abort();
        idle().await;
        loader.let_go(11);
        let answers = answers(others).await;
        assert!(!answers.contains(&1) && are_all_different(answers));
    }
}

async fn is_shared_in_each_process_and_queues_no_process(faults: Faults) {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(LOAD);
        let process = || {
            let layer = layer(place(&memory)).max_entry_bytes(1_000);
            layer.codec(Text::new(faults)).build().unwrap().layer(loader.clone())
        };
        let fleet = [(); 5].map(|()| process());
        let began = Instant::now();
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 20)).collect();
        answers(asked).await;
        assert!(began.elapsed() <= LOAD * 3, "it took {:?}", began.elapsed());
        assert!(loader.loads() <= 6, "{} loads", loader.loads());
        let began = Instant::now();
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 20)).collect();
        answers(asked).await;
        assert!(began.elapsed() <= LOAD * 2, "it took {:?}", began.elapsed());
        assert!(loader.most_at_once() <= 5, "{} at once", loader.most_at_once());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_shared_in_each_process_and_queues_no_process() {
    is_shared_in_each_process_and_queues_no_process(Faults::Long).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_encoded_is_shared_in_each_process_and_queues_no_process() {
    is_shared_in_each_process_and_queues_no_process(Faults::FailsToEncode).await;
}

#[tokio::test(start_paused = true)]
async fn that_there_is_none_is_shared_and_not_kept() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(LOAD);
        let layer =
            layer(place(&memory)).classify(|_: &usize| Cacheability::NotFound).build().unwrap();
        let cached = layer.layer(loader.clone());
        assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
        assert!(memory.is_empty());
        assert_eq!(answer(&cached, 1).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn that_there_is_none_is_kept_for_a_time_of_its_own() {
    for place in PLACES {
        let layer = layer(place(&MemoryStore::new(10))).not_found_ttl(SECOND);
        let layer =
            layer.stale_while_revalidate(MINUTE).classify(|_: &usize| Cacheability::NotFound);
        let cached = layer.build().unwrap().layer(Loader::new());
        assert_eq!(answer(&cached, 1).await, 1);
        sleep(SECOND - Duration::from_millis(1)).await;
        assert_eq!(answer(&cached, 1).await, 1);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(answer(&cached, 1).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn one_private_answer_does_not_end_the_sharing() {
    for place in PLACES {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(LOAD);
        let process = || layer(place(&memory)).classify(first_private);
        let fleet: Vec<_> =
            (0..5).map(|_| process().build().unwrap().layer(loader.clone())).collect();
        answer(&fleet[0], 1).await;
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 40)).collect();
        assert_eq!(answers(asked).await, [2; 200]);
    }
}

fn first_private(number: &usize) -> Cacheability {
    match number {
        1 => Cacheability::PrivateKey,
        _ => Cacheability::Keep,
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_for_all_ends_the_time_of_private_ones() {
    for place in PLACES {
        let loader = Loader::taking(LOAD);
        let first_ten = |number: &usize| match number {
            1..=10 => Cacheability::PrivateKey,
            _ => Cacheability::Keep,
        };
        let cached = layer(place(&MemoryStore::new(10)))
            .classify(first_ten)
            .build()
            .unwrap()
            .layer(loader.clone());
        for _ in 0..10 {
            answer(&cached, 1).await;
        }
        answers(burst(&cached, 1, 200)).await;
        assert!(loader.loads() <= 10 + 10 + 1, "{} loads", loader.loads());
        let loads = loader.loads();
        answers(burst(&cached, 1, 200)).await;
        assert!(loader.loads() <= loads + 1, "{} loads, {loads} before", loader.loads());
    }
}

/// The users of five processes, where each process has few.
#[tokio::test(start_paused = true)]
async fn private_answers_queue_no_process() {
    for (place, verdict) in PLACES.into_iter().flat_map(|place| {
        [Cacheability::PrivateKey, Cacheability::PrivateOnce].map(|verdict| (place, verdict))
    }) {
        let memory = MemoryStore::new(10);
        let loader = Loader::taking(LOAD);
        let process = || layer(place(&memory)).classify(move |_: &usize| verdict);
        let fleet: Vec<_> =
            (0..20).map(|_| process().build().unwrap().layer(loader.clone())).collect();
        for _ in 0..3 {
            let began = Instant::now();
            let asked = fleet.iter().flat_map(|process| burst(process, 1, 2)).collect();
            assert!(are_all_different(answers(asked).await));
            assert!(began.elapsed() <= LOAD * 4, "{verdict:?}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_answer_too_large_does_not_keep_the_next_from_being_kept() {
    for place in PLACES {
        let layer = layer(place(&MemoryStore::new(10))).max_entry_bytes(9).build().unwrap();
        let loads = Arc::new(AtomicUsize::new(0));
        let cached = layer.layer(service_fn(move |_: u64| {
            let load = loads.fetch_add(1, SeqCst);
            let answer = if load == 0 { "too large".repeat(9) } else { format!("load {load}") };
            async move { Ok::<_, Infallible>(answer) }
        }));
        let ask = async || cached.clone().oneshot(1).await.expect("no error");
        ask().await;
        assert_eq!(ask().await, "load 1");
        assert_eq!(ask().await, "load 1", "it is kept");
    }
}
