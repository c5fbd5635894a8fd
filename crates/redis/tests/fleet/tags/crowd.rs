//! A tag of many keys is invalidated or expired while callers in all processes ask for them.
//!
//! `BELLWETHER_FLEET_KEYS` sets how many keys there are, and `BELLWETHER_FLEET_CALLERS` how many
//! callers each of four processes has.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_testkit::seeds;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::answer::How;
use crate::fleet::Fleet;
use crate::messages::{Event, RowCallers, Setup, TagOrder, What};
use crate::process::Worker;
use crate::rows::LOADS_AT_ONCE;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it on a machine that does nothing else"]
async fn a_tag_that_is_invalidated_under_a_crowd_costs_one_load_per_key() {
    let crowd = TagCrowd::gather().await;
    let Fleet { database, .. } = &crowd.fleet;
    let mut ways = Ways::default();
    ways.count(crowd.all_ask().await);
    crowd.has_loaded_each(1, &ways);
    database.take_most_at_once();
    let invalidating = crowd.workers[0].about_tags(TagOrder::InvalidateAll);
    let (asked, _) = tokio::join!(crowd.all_ask(), invalidating);
    ways.count(asked);
    // These came to every key after the invalidation.
    ways.count(crowd.all_ask().await);
    let lapsed = crowd.has_loaded_each(2, &ways);
    let most = database.take_most_at_once();
    let rows = crowd.asking.rows;
    println!("{rows} keys, {lapsed} leases lapsed, at most {most} loads at once, answers {ways:?}");
    assert!(most <= PROCESSES * LOADS_AT_ONCE, "{most} loads at once");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it on a machine that does nothing else"]
async fn a_tag_that_is_expired_over_a_time_lets_no_caller_wait() {
    let crowd = TagCrowd::gather().await;
    let Fleet { database, .. } = &crowd.fleet;
    let mut ways = Ways::default();
    ways.count(crowd.all_ask().await);
    crowd.has_loaded_each(1, &ways);
    let over = KEY_TIME * u32::try_from(crowd.asking.rows).expect("not that many keys");
    let over_ms = over.as_millis() as u64;
    let expired_at = Instant::now();
    crowd.workers[0].about_tags(TagOrder::ExpireAll { over_ms }).await;
    let mut ways = Ways::default();
    while !crowd.has_loaded_all(2) {
        ways.count(crowd.all_ask().await);
    }
    ways.count(crowd.all_ask().await);
    join_all(crowd.workers.iter().map(|worker| worker.is_idle())).await;
    let lapsed = crowd.has_loaded_each(2, &ways);
    let tenths = tenths(&database.begun_since(expired_at), over);
    let rows = crowd.asking.rows;
    println!(
        "{rows} keys over {over:?}, {lapsed} leases lapsed: {tenths:?} loads, answers {ways:?}"
    );
    assert!(ways.none_waited(), "{ways:?}");
    assert!(ways.0.contains_key("Stale"), "{ways:?}");
    are_spread(&tenths, rows, lapsed);
}

/// Four processes, and the callers of each. They have no near tier: on a busy machine, its heartbeat
/// may be late, and then a process connects again and repeats its last invalidations.
struct TagCrowd {
    fleet: Fleet,
    workers: Vec<Worker>,
    asking: RowCallers,
}

impl TagCrowd {
    async fn gather() -> Self {
        let fleet = Fleet::start().await;
        // So long that no request fails on a busy machine.
        let setup = Setup { timeout_ms: 60_000, lease_ms: 120_000, ..fleet.setup() };
        let workers = fleet.workers(PROCESSES, &setup).await;
        let rows = seeds::from_env("BELLWETHER_FLEET_KEYS").unwrap_or(KEYS);
        let callers = seeds::from_env("BELLWETHER_FLEET_CALLERS").unwrap_or(CALLERS);
        Self { fleet, workers, asking: RowCallers { callers, rows, per_row: 4 } }
    }

    /// All callers of all processes ask for their keys once. Each key is asked for by several.
    async fn all_ask(&self) -> Vec<Event> {
        let order = TagOrder::Ask(self.asking);
        join_all(self.workers.iter().map(|worker| worker.about_tags(order))).await.concat()
    }

    /// Asserts that each key was loaded so many times. Only a lease that has lapsed, because a process
    /// of a busy machine was late to renew it, explains another load. Nothing else expires in Redis
    /// meanwhile. Returns how many there were.
    fn has_loaded_each(&self, times: u64, ways: &Ways) -> u64 {
        let Fleet { database, redis } = &self.fleet;
        let rows = self.asking.rows;
        let few: Vec<_> = (0..rows).filter(|row| database.loads(*row) < times).collect();
        assert!(few.is_empty(), "less than {times} loads of {few:?}: {ways:?}");
        let lapsed = redis.info("stats", "expired_keys").expect("Redis counts them");
        let lapsed: u64 = lapsed.parse().expect("a number");
        let more = database.all_loads() - times * rows;
        assert!(more <= lapsed, "{more} loads too many, {lapsed} leases lapsed: {ways:?}");
        lapsed
    }

    /// Whether each key was loaded so many times or more.
    fn has_loaded_all(&self, times: u64) -> bool {
        (0..self.asking.rows).all(|row| self.fleet.database.loads(row) >= times)
    }
}

/// How many answers came about in which way.
#[derive(Debug, Default)]
struct Ways(BTreeMap<String, u64>);

impl Ways {
    fn count(&mut self, history: Vec<Event>) {
        for event in history {
            let What::Read { how, .. } = event.what else { panic!("{event:?}") };
            *self.0.entry(format!("{how:?}")).or_default() += 1;
        }
    }

    /// Whether all were answered from the cache.
    fn none_waited(&self) -> bool {
        let from_cache = [How::Hit, How::Stale].map(|how| format!("{how:?}"));
        self.0.keys().all(|way| from_cache.contains(way))
    }
}

/// How many loads began in each tenth of the time. What began later is in the last one.
fn tenths(times: &[Duration], over: Duration) -> [u64; 10] {
    let mut tenths = [0; 10];
    for at in times {
        let tenth = (at.as_secs_f64() * 10.0 / over.as_secs_f64()) as usize;
        tenths[tenth.min(9)] += 1;
    }
    tenths
}

/// Asserts that no more loads have begun than keys can have become stale, and leases lapsed. A busy
/// machine may begin them later. What a process knows of the server's time is not exact.
fn are_spread(tenths: &[u64; 10], rows: u64, lapsed: u64) {
    let mut begun = 0;
    for (at, more) in tenths.iter().enumerate() {
        begun += more;
        let share = ((at + 1) as f64 / 10.0 + INEXACT).min(1.0);
        let chance = 2.5 * (rows as f64).sqrt();
        let most = rows as f64 * share + chance + lapsed as f64;
        assert!(begun as f64 <= most, "too early: {tenths:?}");
    }
}

const PROCESSES: usize = 4;
const CALLERS: u64 = 50;
const KEYS: u64 = 200;

/// How much of the time of the expiry there is per key.
const KEY_TIME: Duration = Duration::from_millis(10);

/// The part of that time by which a process may be wrong about the server's clock.
const INEXACT: f64 = 0.15;
