//! A majority of five nodes, of which any are taken, down, hanging, or empty.

use std::time::{Duration, Instant};

use bellwether::store::Renew;
use bellwether_lock::redis::RedisClientOptions;
use bellwether_lock::{Attempt, Lock, LockError, Redlock, Released};
use bellwether_testkit::servers::{RedisServer, Reply};
use tokio::time::sleep;

use crate::world::{LONG, attempt, claim, free, key, options, take};

/// Servers that do not know of each other.
pub(crate) struct Nodes {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) lock: Redlock,
}

impl Nodes {
    pub(crate) async fn start(count: usize) -> Self {
        Self::with_timeout(count, Duration::from_secs(3)).await
    }

    /// For tests in which nodes hang.
    pub(crate) async fn start_hasty(count: usize) -> Self {
        Self::with_timeout(count, TIMEOUT).await
    }

    async fn with_timeout(count: usize, timeout: Duration) -> Self {
        let servers: Vec<_> = (0..count).map(|_| RedisServer::start()).collect();
        let nodes = servers.iter().map(|server| node(server).timeout(timeout));
        let lock = Redlock::connect(nodes).await.expect("a lock");
        Self { servers, lock }
    }

    /// On how many nodes the key is taken.
    pub(crate) fn held(&self, number: u64) -> usize {
        let exists =
            |server: &&RedisServer| server.command(&["EXISTS", &name(number)]) == Reply::Integer(1);
        self.servers.iter().filter(exists).count()
    }

    /// Another holder has the key on these nodes.
    fn is_taken_on(&self, subset: u32, number: u64) {
        for server in self.in_subset(subset) {
            server.command(&["SET", &name(number), "another holder", "PX", "60000"]);
        }
    }

    fn in_subset(&self, subset: u32) -> impl Iterator<Item = &RedisServer> {
        let servers = self.servers.iter().enumerate();
        servers.filter(move |(at, _)| subset & (1 << at) != 0).map(|(_, server)| server)
    }
}

pub(crate) fn name(number: u64) -> String {
    format!("bw:test:{{{}}}:redlock", key(number).digest())
}

/// Options of a node that is asked every time, and after a restart soon.
fn node(server: &RedisServer) -> RedisClientOptions {
    let options = options(server).probe_every(Duration::from_millis(100));
    options.down_after(1_000_000)
}

fn is_granted(attempt: &Result<Attempt, LockError>) -> bool {
    matches!(attempt, Ok(Attempt::Granted(_)))
}

/// Every subset once, each but for one node the same as the last. And which that is.
fn subsets() -> impl Iterator<Item = (u32, usize)> {
    (1..32_u32).map(|step| (step ^ (step >> 1), step.trailing_zeros() as usize))
}

#[tokio::test]
async fn it_is_held_if_and_only_if_three_of_five_are_free_and_a_minority_is_given_back() {
    let nodes = Nodes::start(5).await;
    for subset in 0..32_u32 {
        let number = subset.into();
        let ours = claim(subset.into());
        nodes.is_taken_on(subset, number);
        let taken = subset.count_ones() as usize;
        let attempt = attempt(&nodes.lock, &ours, LONG).await.expect("an answer");
        match attempt {
            Attempt::Granted(grant) => {
                assert!(taken <= 2 && grant.fence.is_none(), "{subset:b}");
                assert_eq!(nodes.held(number), 5);
                free(&nodes.lock, &ours).await;
            }
            Attempt::Busy(busy) => {
                assert!(taken >= 3, "{subset:b}");
                assert!(busy.remaining.is_some_and(|left| left > LONG / 2), "{busy:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(nodes.held(number), taken, "{subset:b}");
    }
}

#[tokio::test]
async fn every_minority_may_be_down_and_a_majority_is_an_error() {
    let mut nodes = Nodes::start(5).await;
    for (subset, changed) in subsets() {
        let down = subset.count_ones();
        let ours = claim(subset.into());
        if subset & (1 << changed) == 0 {
            nodes.servers[changed].restart();
            // The pause after an attempt to connect that has failed.
            sleep(Duration::from_millis(60)).await;
        } else {
            nodes.servers[changed].kill();
        }
        let attempt = attempt(&nodes.lock, &ours, LONG).await;
        assert_eq!(is_granted(&attempt), down <= 2, "{subset:b}: {attempt:?}");
        assert_eq!(attempt.is_err(), down > 2, "{subset:b}: {attempt:?}");
        if down <= 2 {
            assert_eq!(nodes.lock.renew(&ours, LONG).await.expect("held"), Renew::Held);
            free(&nodes.lock, &ours).await;
        }
    }
}

#[tokio::test]
async fn every_minority_may_hang_and_a_majority_costs_no_more_than_its_timeout() {
    let nodes = Nodes::start_hasty(5).await;
    for (subset, changed) in subsets() {
        let hanging = subset.count_ones();
        let ours = claim(subset.into());
        let server = &nodes.servers[changed];
        if subset & (1 << changed) == 0 {
            server.resume();
            // The pause after an attempt to connect that has failed.
            sleep(Duration::from_millis(60)).await;
        } else {
            server.stop();
        }
        let began = Instant::now();
        let attempt = attempt(&nodes.lock, &ours, LONG).await;
        let took = began.elapsed();
        assert_eq!(is_granted(&attempt), hanging <= 2, "{subset:b}: {attempt:?}");
        assert_eq!(attempt.is_err(), hanging > 2, "{subset:b}: {attempt:?}");
        // Asking, and giving back.
        assert!(took < TIMEOUT * 4, "{subset:b}: {took:?}");
    }
    nodes.servers.iter().for_each(RedisServer::resume);
}

#[tokio::test]
async fn a_renewal_holds_with_three_of_five_and_takes_back_the_empty_ones_or_is_lost_for_good() {
    let nodes = Nodes::start(5).await;
    for subset in 0..32_u32 {
        let number = subset.into();
        let ours = claim(subset.into());
        let empty = subset.count_ones() as usize;
        take(&nodes.lock, &ours, LONG).await;
        for server in nodes.in_subset(subset) {
            server.command(&["FLUSHALL"]);
        }
        let renewed = nodes.lock.renew(&ours, LONG).await.expect("an answer");
        let expected = if empty <= 2 { Renew::Held } else { Renew::Lost };
        assert_eq!(renewed, expected, "{subset:b}");
        let held = if empty <= 2 { 5 } else { 5 - empty };
        assert_eq!(nodes.held(number), held, "{subset:b}");
        // Lost is lost: it does not come back by asking again.
        assert_eq!(nodes.lock.renew(&ours, LONG).await.expect("an answer"), expected);
        let released = nodes.lock.release(ours).await.expect("an answer");
        let expected = if empty <= 2 { Released::Freed } else { Released::NotHeld };
        assert_eq!(released, expected, "{subset:b}");
        assert_eq!(nodes.held(number), 0, "{subset:b}");
    }
}

#[tokio::test]
async fn a_renewal_prolongs_the_lease_on_all_nodes_and_only_of_its_own() {
    let nodes = Nodes::start(5).await;
    let ours = claim(1);
    take(&nodes.lock, &ours, LONG).await;
    nodes.servers[0].command(&["SET", &name(1), "another holder", "PX", "30000"]);
    let longer = LONG * 2;
    assert_eq!(nodes.lock.renew(&ours, longer).await.expect("an answer"), Renew::Held);
    let left = |server: &RedisServer| match server.command(&["PTTL", &name(1)]) {
        Reply::Integer(left) => Duration::from_millis(left.try_into().expect("it has a life")),
        other => panic!("{other:?}"),
    };
    assert!(nodes.servers[1..].iter().all(|server| left(server) > LONG));
    assert!(left(&nodes.servers[0]) <= Duration::from_secs(30));
    // Not taken from them: re-created only where it is free.
    let theirs = nodes.servers[0].command(&["GET", &name(1)]);
    assert_eq!(theirs, Reply::Text("another holder".into()));
}

/// Short, as a node that hangs costs it, and long enough for a machine that is busy.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(250);
