//! A primary, its replica, and three sentinels.

use std::thread::sleep;
use std::time::{Duration, Instant};

use bellwether_testkit::servers::{RedisServer, Reply, SERVICE, SentinelFleet};
use rand::Rng;
use tokio::runtime::Handle;

use super::{Injector, pause};
use crate::faults::Loss;

/// How long the sentinels may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Sentinel(SentinelFleet);

impl Sentinel {
    pub(super) fn start(runtime: &Handle) -> Self {
        Self(runtime.block_on(SentinelFleet::start()))
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }

    pub(super) fn primaries(&self) -> Vec<usize> {
        self.named().into_iter().map(usize::from).collect()
    }

    pub(super) fn disturb(&mut self, injector: &mut Injector<'_>) {
        let fault = injector.rng.random_range(0..8);
        if fault < 4 {
            return self.replace_primary(fault, injector);
        }
        match fault {
            4 => injector.inject("primary stopped for a moment", Loss::Nothing, None, |rng| {
                self.primary().stop();
                pause(rng, 20, 300);
                self.primary().resume();
            }),
            5 => injector.inject("a sentinel killed", Loss::Nothing, None, |rng| {
                let sentinel = rng.random_range(0..self.0.sentinels.len());
                self.0.sentinels[sentinel].kill();
                pause(rng, 100, 1_000);
                self.0.sentinels[sentinel].restart();
            }),
            6 => injector.inject("FLUSHALL", Loss::Everything, None, |_| {
                _ = self.primary().try_command(&["FLUSHALL"]);
            }),
            _ => injector.inject("clients killed by the server", Loss::Nothing, None, |rng| {
                let kinds = ["normal", "pubsub"];
                let kind = kinds[rng.random_range(0..kinds.len())];
                _ = self.primary().try_command(&["CLIENT", "KILL", "TYPE", kind]);
            }),
        }
    }

    /// Ends with another primary, as planned or by a fault.
    fn replace_primary(&mut self, fault: i32, injector: &mut Injector<'_>) {
        match fault {
            0 | 1 => injector.inject("planned failover", Loss::LastWrites, None, |_| {
                let before = self.primary().port();
                // Refused for some seconds after another one.
                if self.0.sentinels[0].try_command(&["SENTINEL", "FAILOVER", SERVICE]).is_ok() {
                    self.await_other_primary(before);
                }
                self.settle();
            }),
            2 => {
                injector.inject("primary killed, replica promoted", Loss::LastWrites, None, |rng| {
                    let before = self.primary().port();
                    self.primary_mut().kill();
                    self.await_other_primary(before);
                    pause(rng, 1, 1_000);
                    self.server_mut(before).restart();
                    self.settle();
                })
            }
            _ => injector.inject(
                "primary stopped, replica promoted",
                Loss::LastWrites,
                None,
                |rng| {
                    let before = self.primary().port();
                    self.primary().stop();
                    self.await_other_primary(before);
                    pause(rng, 1, 2_000);
                    // It takes itself for the primary until a sentinel tells it.
                    self.server_mut(before).resume();
                    self.settle();
                },
            ),
        }
    }

    /// The server that most sentinels name as the primary.
    fn primary(&self) -> &RedisServer {
        if self.named() == Some(self.0.replica.port()) { &self.0.replica } else { &self.0.primary }
    }

    fn primary_mut(&mut self) -> &mut RedisServer {
        self.server_mut(self.primary().port())
    }

    fn server_mut(&mut self, port: u16) -> &mut RedisServer {
        if port == self.0.replica.port() { &mut self.0.replica } else { &mut self.0.primary }
    }

    fn named(&self) -> Option<u16> {
        let named = |sentinel: &RedisServer| {
            let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
            let Ok(Reply::Array(mut address)) = sentinel.try_command(&ask) else { return None };
            address.pop()?.text().parse().ok()
        };
        let mut ports: Vec<u16> = self.0.sentinels.iter().filter_map(named).collect();
        ports.sort_unstable();
        ports.get(ports.len() / 2).copied()
    }

    fn await_other_primary(&self, before: u16) {
        self.wait("another primary", || self.named().is_some_and(|port| port != before));
    }

    /// Makes the other server the replica, as the sentinels do later, and waits until all agree.
    fn settle(&self) {
        self.wait("a primary and its replica", || {
            let primary = self.primary();
            let other = if primary.port() == self.0.replica.port() {
                &self.0.primary
            } else {
                &self.0.replica
            };
            if primary.info("replication", "role").as_deref() != Some("master") {
                return false;
            }
            if other.info("replication", "master_port") != Some(primary.port().to_string()) {
                _ = other.try_command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
                return false;
            }
            other.info("replication", "master_link_status").as_deref() == Some("up")
        });
    }

    fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < PATIENCE, "the sentinels do not agree on {what}");
            sleep(Duration::from_millis(50));
        }
    }
}
