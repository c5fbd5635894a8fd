//! Promises 1 and 3: one load per key per fleet, and Redis work that grows with processes.

use bellwether_testkit::clock;

use crate::answer::{Answer, How};
use crate::fleet::{Calls, Fleet, all_have, begin, count, end, gather};
use crate::process::Worker;

#[tokio::test(flavor = "multi_thread")]
async fn one_load_per_key_per_fleet_of_eight_processes() {
    one_load_per_key(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_work_grows_with_processes_and_not_with_callers() {
    let fleet = Fleet::start().await;
    let mut workers = Vec::new();
    for (round, processes) in [1, 2, 4].into_iter().enumerate() {
        let more = processes - workers.len();
        workers.extend(fleet.workers(more, &fleet.setup_without_pauses()).await);
        for callers in [1, 10, 250] {
            let key = 1_000 * round as u64 + callers as u64;
            let before = fleet.calls();
            let mut loads = fleet.database.hold(key);
            gather(&fleet, &workers, key, callers).await;
            let released = clock::now();
            loads.next().await.answer();
            all_have(&end(&workers, key).await, 1);
            let calls = fleet.calls().since(&before);
            println!("{processes} processes of {callers} callers: {calls:?}");
            // A value that a server takes long to store has its lease renewed each 0.3 s. A busy machine may stop
            // the server for that long.
            let renewals = (clock::now() - released) / 300_000;
            calls.are_those_of_a_burst();
            // Each process makes a lookup and asks for the lease. Then one stores, and the others are
            // told. One whose last callers came after it had asked looks up once more for them.
            let (processes, waiting) = (processes as u64, processes as u64 - 1);
            assert!(calls.of("mget") <= processes + waiting, "{calls:?}");
            let scripts = processes + 1..=processes + 1 + renewals;
            assert!(scripts.contains(&calls.of("evalsha")), "{calls:?}");
            assert_eq!(calls.of("publish"), waiting, "{calls:?}");
        }
    }
}

/// A thousand callers in all, which miss together, again and again.
async fn one_load_per_key(processes: usize) {
    let fleet = Fleet::start().await;
    let setup = fleet.setup_without_pauses();
    let workers = fleet.workers(processes, &setup).await;
    for key in 0..ROUNDS {
        let (answers, calls) = burst(&fleet, &workers, key).await;
        assert_eq!(fleet.database.loads(key), 1);
        all_have(&answers, 1);
        assert_eq!(answers.len(), CALLERS);
        assert_eq!(count(&answers, How::Led { stored: true }), 1);
        // Of callers that come together, the first of each process makes a lookup of its own. If
        // its miss arrives after the load, it asks once more.
        assert!(count(&answers, How::Hit) <= processes, "{answers:?}");
        calls.are_those_of_a_burst();
        assert!(calls.of_clients() <= 4 * processes as u64, "{calls:?}");
    }
    fleet.nothing_is_left_behind();
}

/// Callers in every process miss a key together; its load ends when every process waits for it.
async fn burst(fleet: &Fleet, workers: &[Worker], key: u64) -> (Vec<Answer>, Calls) {
    let mut loads = fleet.database.hold(key);
    let before = fleet.calls();
    let processes = workers.len();
    begin(workers, key, key, CALLERS / processes).await;
    let load = loads.next().await;
    fleet.has_called(&before, "mget", processes as u64).await;
    fleet.has_called(&before, "evalsha", processes as u64).await;
    let released = clock::now();
    load.answer();
    let answers = end(workers, key).await;
    println!("{processes} processes: {}", behind(&answers, released));
    (answers, fleet.calls().since(&before))
}

/// How long after the load its callers were answered.
pub(crate) fn behind(answers: &[Answer], released: u64) -> String {
    let mut behind: Vec<_> = answers.iter().map(|answer| answer.at - released).collect();
    behind.sort_unstable();
    let [half, most] = [behind.len() / 2, behind.len() * 99 / 100].map(|at| behind[at]);
    format!("{half} us (p50), {most} us (p99) behind the load")
}

const ROUNDS: u64 = 5;
const CALLERS: usize = 1_000;
