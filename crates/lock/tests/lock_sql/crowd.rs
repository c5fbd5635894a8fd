//! One holder at a time, with any number of callers.

use std::sync::Arc;
use std::time::Duration;

use bellwether_testkit::locks::{Count, LockCommand, LockReply, read_count};
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::bench::{
    AMPLE, Bench, Kind, LockSettings, SESSION, ask, free, insist, key, promises, take,
};
use crate::worker;

promises![
    tasks_of_processes_count_without_missing_one_and_fences_grow,
    many_take_turns_over_few_connections,
    a_caller_without_a_connection_gets_that_error,
    broken_connections_leave_their_slots_to_others,
    keys_that_are_free_leave_nothing_in_the_process,
    a_hold_lasts_as_long_as_it_is_kept,
];

/// Cases 6, 7, 51 and 80.
async fn tasks_of_processes_count_without_missing_one_and_fences_grow(on: Bench) {
    let rounds = std::env::var("BELLWETHER_LOCK_ROUNDS");
    let rounds: u64 = rounds.map_or(8, |rounds| rounds.parse().expect("a number of rounds"));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("count");
    std::fs::write(&file, "0 0").expect("a file");
    let workers = join_all((0..PROCESSES).map(|_| worker::start(&on))).await;
    let began = std::time::Instant::now();
    let count = LockCommand::Count(Count {
        file: file.clone(),
        tasks: TASKS,
        rounds,
        in_turns: false,
        fenced: true,
    });
    for counted in join_all(workers.iter().map(|worker| worker.send(&count))).await {
        assert!(matches!(counted, Ok(LockReply::Counted { .. })), "{counted:?}");
    }
    let (count, _) = read_count(&file);
    println!("{:?}: {count} rounds in {:?}", on.kind, began.elapsed());
    assert_eq!(count, PROCESSES * TASKS * rounds);
}

/// Case 85.
async fn many_take_turns_over_few_connections(on: Bench) {
    let lock = on.lock_with(&LockSettings { connections: 3, ..LockSettings::default() });
    // Some keys are wanted by several, others by one.
    let turns = (0..30).map(|number| {
        let lock = Arc::clone(&lock);
        async move {
            for _ in 0..3 {
                let held = ask(&*lock, key(number % 7), Duration::from_secs(20)).await;
                free(&*lock, held.expect("its turn comes")).await;
            }
        }
    });
    join_all(turns).await;
    // The row form has another one to count by.
    assert!(on.sessions() <= 4, "{} connections", on.sessions());
}

async fn a_caller_without_a_connection_gets_that_error(on: Bench) {
    let timeout = Duration::from_secs(1);
    let lock = on.lock_with(&LockSettings { connections: 1, timeout, ..LockSettings::default() });
    let held = take(&*lock, key(1)).await;
    let claim = bellwether::store::Claim::new(key(2));
    let error =
        crate::bench::ask_by(&*lock, claim, Duration::ZERO).await.expect_err("no connection");
    assert_eq!(error.kind(), bellwether_lock::LockErrorKind::NotReady);
    assert!(error.to_string().contains("all 1 connections"), "{error}");
    free(&*lock, held).await;
    let held = take(&*lock, key(2)).await;
    free(&*lock, held).await;
}

/// Case 85.
async fn broken_connections_leave_their_slots_to_others(on: Bench) {
    let lock = on.lock_with(&LockSettings { connections: 2, ..LockSettings::default() });
    for round in 0..4 {
        let mut held = take(&*lock, key(round)).await;
        let idle = take(&*lock, key(100)).await;
        free(&*lock, idle).await;
        on.kill_sessions();
        held.lost(SESSION + AMPLE).await;
    }
    let both = [take(&*lock, key(1)).await, take(&*lock, key(2)).await];
    for held in both {
        free(&*lock, held).await;
    }
}

/// The first write-up's map of locks grew for ever.
async fn keys_that_are_free_leave_nothing_in_the_process(on: Bench) {
    let lock = on.lock_with(&LockSettings { connections: 4, ..LockSettings::default() });
    for number in 0..500 {
        let watch = bellwether_lock::Lock::watch(&*lock, &key(number));
        let held = take(&*lock, key(number)).await;
        free(&*lock, held).await;
        drop(watch);
    }
    assert!(format!("{lock:?}").contains("claims: 0"), "{lock:?}");
    if on.kind != Kind::Advisory {
        // A counter that has no row that stays.
        assert_eq!(on.command("SELECT COUNT(*) FROM test.bellwether_fences"), "0");
    }
}

/// Case 19: leases do not count, and an open session is never too silent.
async fn a_hold_lasts_as_long_as_it_is_kept(on: Bench) {
    let lock =
        on.lock_with(&LockSettings { session: Duration::from_secs(1), ..LockSettings::default() });
    let held = take(&*lock, key(1)).await;
    sleep(Duration::from_millis(1_600)).await;
    assert!(!held.session.has_ended());
    assert!(ask(&*lock, key(1), Duration::ZERO).await.is_none());
    free(&*lock, held).await;
    // What lies idle is ended before the server has to, but for the one to count by.
    sleep(Duration::from_millis(1_200)).await;
    assert!(on.sessions() <= usize::from(on.kind == Kind::Rows), "{}", on.sessions());
    let (held, took) = insist(&*lock, key(1)).await;
    assert!(took < AMPLE, "{took:?}");
    free(&*lock, held).await;
}

const PROCESSES: u64 = 8;
const TASKS: u64 = 8;
