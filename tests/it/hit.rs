//! A hit costs next to nothing, and an entry lasts for its ttl.

use std::time::Duration;

use bellwether::codec::Json;
use bellwether::service::ReadThrough;
use bellwether::{CacheStatus, Lifetimes, MemoryStore};
use bellwether_testkit::caches::codec::{Faults, Text};
use bellwether_testkit::caches::{
    JSON, KeyOf, MINUTE, SECOND, answer, answers, ask, burst, cached, is_leased, layer, lease, put,
    put_for, settled, tasks,
};
use bellwether_testkit::loaders::{Loader, Untouchable};
use futures_util::FutureExt;
use tokio::time::advance;
use tower::{Layer, Service};

use crate::support::store::{Operation, local, remote};

#[tokio::test(start_paused = true)]
async fn a_hit_does_not_poll_the_loader_for_readiness() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", JSON).await;
    let mut untouchable: ReadThrough<Untouchable, KeyOf, Json> =
        layer(store).build().unwrap().layer(Untouchable);
    assert_eq!(untouchable.call(1).await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_answered_at_its_first_poll() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", JSON).await;
    let hit = cached(store, &Loader::new()).call(1).now_or_never();
    assert_eq!(hit.expect("an answer at once").unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_hit_starts_no_task() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", JSON).await;
    let mut cached = cached(store, &Loader::new());
    let before = tasks();
    let hit = cached.call(1);
    assert_eq!(tasks(), before);
    hit.now_or_never().expect("an answer at once").unwrap();
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_hit_within_the_process_asks_the_store_nothing() {
    let store = local(&MemoryStore::new(10));
    put(&store, 1, "42", JSON).await;
    let before = store.total_calls();
    assert_eq!(answer(&cached(store.clone(), &Loader::new()), 1).await, 42);
    assert_eq!(store.total_calls(), before);
}

#[tokio::test(start_paused = true)]
async fn a_hit_in_a_remote_store_is_one_lookup_and_no_lease() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "42", JSON).await;
    let store = remote(&memory);
    assert_eq!(answer(&cached(store.clone(), &Loader::new()), 1).await, 42);
    assert_eq!((store.calls(Operation::Lookup), store.total_calls()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn hits_that_meet_across_a_wire_are_hits_and_take_no_lease() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "42", JSON).await;
    let cached = cached(remote(&memory), &Loader::new());
    for (answer, status) in settled(burst(&cached, 1, 10)).await {
        let expected = CacheStatus::Hit { fresh_for: Some(MINUTE) };
        assert_eq!((answer.unwrap(), status), (42, expected));
    }
    assert!(!is_leased(&memory, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_lone_hit_across_a_wire_starts_no_task() {
    let memory = MemoryStore::new(10);
    put(&memory, 1, "42", JSON).await;
    let mut cached = cached(remote(&memory), &Loader::new());
    let before = tasks();
    let mut hit = tokio_test::task::spawn(cached.call(1));
    while hit.poll().is_pending() {
        assert_eq!(tasks(), before);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_hit_needs_no_runtime() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", JSON).await;
    let outside = std::thread::spawn(move || {
        let hit = cached(store, &Loader::new()).call(1);
        hit.now_or_never().expect("an answer at once").unwrap()
    });
    assert_eq!(outside.join().expect("no panic"), 42);
}

#[tokio::test(start_paused = true)]
async fn a_hit_does_not_wait_for_a_lease_of_another_process() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", JSON).await;
    let _held = lease(&store, 1, MINUTE).await;
    let hit = cached(store, &Loader::new()).call(1).now_or_never();
    assert_eq!(hit.expect("an answer at once").unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_hit_says_how_much_longer_it_is_fresh() {
    let store = MemoryStore::new(10);
    let windows = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE);
    put_for(&store, 1, "42", JSON, windows).await;
    advance(SECOND * 20).await;
    let (_, status) = cached(store, &Loader::new()).call(1).with_status().await;
    assert_eq!(status, CacheStatus::Hit { fresh_for: Some(SECOND * 40) });
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_until_its_time_is_over() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    answer(&cached, 1).await;
    advance(MINUTE - Duration::from_millis(1)).await;
    assert_eq!(answer(&cached, 1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_loaded_again_when_its_ttl_is_over() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    answer(&cached, 1).await;
    advance(MINUTE).await;
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn reading_an_answer_does_not_prolong_its_time() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    for _ in 0..4 {
        assert_eq!(answer(&cached, 1).await, 1);
        advance(SECOND * 15).await;
    }
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_hit_decodes_nothing_that_this_process_loaded() {
    let store = MemoryStore::new(10);
    let text = Text::new(Faults::None);
    let [one, other] = [(); 2].map(|()| layer(store.clone()).codec(text.clone()));
    answer(&one.build().unwrap().layer(Loader::new()), 1).await;
    let verified = text.decoded();
    answer(&other.build().unwrap().layer(Loader::new()), 1).await;
    assert_eq!((verified, text.decoded()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_others_stored_is_decoded_once() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", Text::CODEC).await;
    let text = Text::new(Faults::None);
    let cached = layer(store).codec(text.clone()).build().unwrap().layer(Loader::new());
    assert_eq!(answers(burst(&cached, 1, 100)).await, [42; 100]);
    assert_eq!(text.decoded(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_another_codec_is_replaced_by_one_load() {
    let store = MemoryStore::new(10);
    put(&store, 1, "42", 99).await;
    let cached = cached(local(&store), &Loader::new());
    assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Hit { fresh_for: Some(MINUTE) });
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_decoded_is_replaced_by_one_load() {
    let store = MemoryStore::new(10);
    put(&store, 1, "no number", JSON).await;
    let cached = cached(local(&store), &Loader::new());
    assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    let (_, status) = ask(&cached, 1).await.unwrap();
    assert_eq!(status, CacheStatus::Hit { fresh_for: Some(MINUTE) });
}

/// The caller reads an undecodable entry, another process replaces it, and then the caller asks for
/// the lease. It declines that one entry, and not its replacement.
#[tokio::test(start_paused = true)]
async fn a_caller_that_met_an_undecodable_entry_accepts_its_replacement() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    put(&memory, 1, "no number", JSON).await;
    let store = local(&memory);
    let acquiring = store.on(Operation::Acquire).nth(1).do_it_and_hold();
    let late = ask(&cached(store, &loader), 1);
    acquiring.reached().await;
    answer(&cached(memory, &loader), 1).await;
    acquiring.open();
    assert_eq!(answers(vec![late]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_replaces_an_entry_that_cannot_be_decoded_by_one_load() {
    let store = MemoryStore::new(10);
    put(&store, 1, "no number", JSON).await;
    let loader = Loader::taking(SECOND);
    let fleet = [(); 4].map(|()| cached(remote(&store), &loader));
    let asked = fleet.iter().flat_map(|process| burst(process, 1, 10)).collect();
    assert_eq!(answers(asked).await, [1; 40]);
}
