//! The cost of locks for the server: commands and time per hand-over, and the memory of many keys.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, slice};

use bellwether::store::Claim;
use bellwether_lock::{Attempt, FairLock, Lock, LockError, RedisLock, Redlock, ReentrantLock};
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::within;
use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::world::{LONG, attempt, claim, free, options, take, wait};

const WAITERS: u32 = 8;
const ROUNDS: u32 = 4;

/// The work while the lock is held.
const WORK: Duration = Duration::from_millis(10);

type Locks = Vec<Arc<dyn Lock>>;

/// The cost of a hand-over: scripts that were run, and time from one holder to the next.
#[derive(Clone, Copy, Debug)]
struct Cost {
    scripts: f64,
    time: Duration,
}

fn scripts(servers: &[RedisServer]) -> f64 {
    let count = |server: &RedisServer| {
        let stats = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
        let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.map_or(0.0, |calls| calls.parse::<f64>().expect("a number"))
    };
    servers.iter().map(count).sum()
}

/// Hands a lock over from each of some waiters to the next, of which each has a connection of its
/// own, as processes have.
async fn hand_over(servers: &[RedisServer], locks: &Locks, poll: Option<Duration>) -> Cost {
    let mut cost = Cost { scripts: 0.0, time: Duration::ZERO };
    for _ in 0..ROUNDS {
        let holder = claim(1);
        take(&*locks[0], &holder, LONG).await;
        let freed_at = Arc::new(Mutex::new(Instant::now()));
        let mut waiters = JoinSet::new();
        for lock in &locks[1..] {
            let lock = Arc::clone(lock);
            let freed_at = Arc::clone(&freed_at);
            waiters.spawn(async move {
                let ours = claim(1);
                match poll {
                    None => drop(wait(&*lock, &ours, LONG).await),
                    Some(pause) => poll_for(&*lock, &ours, pause).await,
                }
                let took = freed_at.lock().expect("the time").elapsed();
                // All others have asked again by then.
                sleep(WORK).await;
                *freed_at.lock().expect("the time") = Instant::now();
                free(&*lock, &ours).await;
                took
            });
        }
        sleep(WORK * 4).await;
        let before = scripts(servers);
        *freed_at.lock().expect("the time") = Instant::now();
        free(&*locks[0], &holder).await;
        cost.time += waiters.join_all().await.into_iter().sum::<Duration>();
        cost.scripts += scripts(servers) - before;
    }
    let count = ROUNDS * WAITERS;
    Cost { scripts: cost.scripts / f64::from(count), time: cost.time / count }
}

async fn poll_for(lock: &dyn Lock, claim: &Claim, pause: Duration) {
    while let Attempt::Busy(_) = attempt(lock, claim, LONG).await.expect("an answer") {
        sleep(pause).await;
    }
}

/// As many as there are waiters, and one that holds it first.
async fn locks<L: Lock>(connect: impl AsyncFn() -> Result<L, LockError>) -> Locks {
    let mut locks: Locks = Vec::new();
    for _ in 0..=WAITERS {
        locks.push(Arc::new(connect().await.expect("a lock")));
    }
    locks
}

#[tokio::test]
async fn a_hand_over_is_announced_in_far_less_than_a_pause_and_by_few_scripts() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let one = &servers[..1];
    let options = || options(&servers[0]);
    let redis = locks(async || RedisLock::connect(options()).await).await;
    let fair = locks(async || FairLock::connect(options()).await).await;
    let reentrant = locks(async || ReentrantLock::connect(options()).await).await;
    let nodes = || servers.iter().map(crate::world::options);
    let redlock = locks(async || Redlock::connect(nodes()).await).await;
    let polled = hand_over(one, &redis, Some(Duration::from_millis(50))).await;
    let redis = hand_over(one, &redis, None).await;
    let fair = hand_over(one, &fair, None).await;
    let reentrant = hand_over(one, &reentrant, None).await;
    let redlock = hand_over(&servers, &redlock, None).await;
    eprintln!("polled every 50 ms {polled:?}");
    eprintln!(
        "notified: redis {redis:?}, fair {fair:?}, reentrant {reentrant:?}, redlock {redlock:?}"
    );
    for notified in [redis, fair, reentrant, redlock] {
        assert!(notified.time < polled.time / 2, "{notified:?}, {polled:?}");
    }
    // A release, and each waiter asks: as many scripts as there are waiters on average.
    assert!(redis.scripts <= f64::from(WAITERS + 1) / 2.0 + 2.5, "{redis:?}");
    // A release, and the next one asks.
    assert!(fair.scripts <= 2.5, "{fair:?}");
}

#[tokio::test]
async fn many_waits_for_many_keys_share_one_connection() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let before = clients(&server);
    let visits = stream::iter(0..5_000).map(|number| {
        let lock = &lock;
        async move {
            let ours = claim(number % 5);
            wait(lock, &ours, LONG).await;
            free(lock, &ours).await;
        }
    });
    visits.buffer_unordered(20).collect::<()>().await;
    assert_eq!(clients(&server), before);
}

fn clients(server: &RedisServer) -> Option<String> {
    server.info("clients", "connected_clients")
}

#[tokio::test]
async fn a_lock_without_waiters_costs_two_scripts() {
    let server = RedisServer::start();
    let locks: [Arc<dyn Lock>; 3] = [
        Arc::new(RedisLock::connect(options(&server)).await.expect("a lock")),
        Arc::new(FairLock::connect(options(&server)).await.expect("a lock")),
        Arc::new(ReentrantLock::connect(options(&server)).await.expect("a lock")),
    ];
    for lock in locks {
        let before = scripts(slice::from_ref(&server));
        for _ in 0..10 {
            let ours = claim(1);
            take(&*lock, &ours, LONG).await;
            free(&*lock, &ours).await;
        }
        assert_eq!(scripts(slice::from_ref(&server)) - before, 20.0, "{lock:?}");
    }
}

fn statistic(server: &RedisServer, section: &str, name: &str) -> u64 {
    let figure = server.info(section, name).unwrap_or_else(|| panic!("no {name}"));
    figure.trim().parse().expect("a number")
}

#[tokio::test]
async fn a_free_lock_costs_seven_commands_of_which_two_are_sent() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let fair = FairLock::connect(options(&server)).await.expect("a lock");
    for (lock, most) in [(&lock as &dyn Lock, 7), (&fair, 9)] {
        let executed = || statistic(&server, "stats", "total_commands_processed");
        // The first grant sets the life of the counter as well.
        for number in 0..=10 {
            let ours = claim(number);
            take(lock, &ours, LONG).await;
            free(lock, &ours).await;
        }
        let before = executed();
        for number in 1..=10 {
            let ours = claim(number);
            take(lock, &ours, LONG).await;
            free(lock, &ours).await;
        }
        // The request for the figure is one, too.
        let each = (executed() - before - 1).div_ceil(10);
        assert!(each <= most, "{each} commands, {lock:?}");
    }
}

#[tokio::test]
async fn the_server_tracks_no_name_of_a_lock_whose_last_waiter_has_gone() {
    let server = RedisServer::start();
    let locks: [Arc<dyn Lock>; 3] = [
        Arc::new(RedisLock::connect(options(&server)).await.expect("a lock")),
        Arc::new(FairLock::connect(options(&server)).await.expect("a lock")),
        Arc::new(ReentrantLock::connect(options(&server)).await.expect("a lock")),
    ];
    for lock in locks {
        for number in 0..50 {
            let [first, waits, leaves, tries] = [(); 4].map(|()| claim(number));
            take(&*lock, &first, LONG).await;
            crate::world::queue_up(&*lock, &waits).await;
            crate::world::queue_up(&*lock, &leaves).await;
            attempt(&*lock, &tries, LONG).await.expect("an answer");
            assert!(statistic(&server, "stats", "tracking_total_keys") > 0, "{lock:?}");
            free(&*lock, &first).await;
            lock.release(leaves).await.expect("an answer");
            wait(&*lock, &waits, LONG).await;
            free(&*lock, &waits).await;
            // Free when it is released, though it never was held.
            lock.release(claim(number)).await.expect("an answer");
        }
        assert_eq!(statistic(&server, "stats", "tracking_total_keys"), 0, "{lock:?}");
    }
}

/// The number of keys; a million is the full run.
fn keys(default: u64) -> u64 {
    let keys = env::var("BELLWETHER_LOCK_KEYS").ok();
    keys.map_or(default, |keys| keys.parse().expect("a number"))
}

#[tokio::test]
async fn many_keys_that_were_locked_and_freed_leave_nothing() {
    let server = RedisServer::start();
    let options = || options(&server).timeout(Duration::from_millis(500));
    let locks: [Arc<dyn Lock>; 3] = [
        Arc::new(RedisLock::connect(options()).await.expect("a lock")),
        Arc::new(FairLock::connect(options()).await.expect("a lock")),
        Arc::new(ReentrantLock::connect(options()).await.expect("a lock")),
    ];
    let count = keys(9_000);
    let began = Instant::now();
    let visit = async |numbers: Range<u64>| {
        let visits = stream::iter(numbers).map(|number| {
            let lock = Arc::clone(&locks[usize::try_from(number % 3).expect("small")]);
            async move {
                let ours = claim(number);
                take(&*lock, &ours, LONG).await;
                free(&*lock, &ours).await;
            }
        });
        visits.buffer_unordered(64).collect::<()>().await;
    };
    // The first ones also fill what is used again and again.
    visit(0..count / 5).await;
    let before = resident();
    visit(count / 5..count).await;
    let grown = resident().saturating_sub(before);
    eprintln!("{count} keys in {:?}, and {grown} bytes more", began.elapsed());
    assert!(grown < 4 << 20, "{grown} bytes more after {count} keys");
    // The largest fence.
    let marks = || match server.command(&["KEYS", "bw:test:fence:*"]) {
        Reply::Array(marks) => i64::try_from(marks.len()).expect("a number"),
        other => panic!("no list of names: {other:?}"),
    };
    within(LONG, || server.command(&["DBSIZE"]) == Reply::Integer(marks())).await;
    assert_eq!(marks(), 1);
}

/// How much memory this process has, in bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(1).expect("a figure");
    pages.parse::<usize>().expect("a number") * 4_096
}
