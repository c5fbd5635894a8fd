//! One Redis. Half of the workers reach it over a bad network.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::RedisServer;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::runtime::Handle;

use super::{Injector, pause};
use crate::faults::Loss;

pub(crate) struct Single {
    redis: RedisServer,
    proxy: FaultProxy,
}

impl Single {
    pub(super) fn start(runtime: &Handle) -> Self {
        let redis = RedisServer::start();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, redis.port()));
        let proxy = runtime.block_on(FaultProxy::start(address));
        Self { redis, proxy }
    }

    pub(super) fn url(&self, worker: u32) -> String {
        if worker.is_multiple_of(2) { self.redis.url() } else { self.proxy.url() }
    }

    pub(super) fn disturb(&mut self, injector: &mut Injector<'_>, runtime: &Handle) {
        // The proxy opens its port in the runtime.
        let _runtime = runtime.enter();
        match injector.rng.random_range(0..12) {
            fault @ 0..7 => self.disturb_network(fault, injector),
            fault => self.disturb_server(fault, injector),
        }
    }

    fn disturb_network(&self, fault: u32, injector: &mut Injector<'_>) {
        let proxy = &self.proxy;
        match fault {
            0 => injector.inject("connections cut", Loss::Nothing, None, |rng| {
                for _ in 0..rng.random_range(1..6) {
                    proxy.cut();
                    pause(rng, 5, 200);
                }
            }),
            1 => injector.inject("network delays", Loss::Nothing, None, |rng| {
                proxy.delay(delay(rng, 60), delay(rng, 60));
                pause(rng, 500, 3_000);
                proxy.heal();
            }),
            2 => injector.inject("network delays beyond timeouts", Loss::Nothing, None, |rng| {
                proxy.delay(delay(rng, 600), delay(rng, 600));
                pause(rng, 500, 2_500);
                proxy.heal();
            }),
            3 => injector.inject("network silent", Loss::Nothing, None, |rng| {
                proxy.blackhole();
                pause(rng, 300, 3_000);
                if rng.random() {
                    proxy.cut();
                }
                proxy.heal();
            }),
            4 => injector.inject("replies lost", Loss::Nothing, None, |rng| {
                proxy.silence();
                pause(rng, 100, 1_500);
                proxy.cut();
                proxy.heal();
            }),
            5 => injector.inject("connections refused", Loss::Nothing, None, |rng| {
                proxy.refuse();
                proxy.cut();
                pause(rng, 100, 2_000);
                proxy.heal();
            }),
            _ => injector.inject("connection cut within a reply", Loss::Nothing, None, |rng| {
                proxy.cut_after(rng.random_range(0..20_000));
                pause(rng, 100, 600);
                proxy.heal();
            }),
        }
    }

    fn disturb_server(&mut self, fault: u32, injector: &mut Injector<'_>) {
        let redis = &mut self.redis;
        match fault {
            7 | 8 => injector.inject("server stopped", Loss::Nothing, None, |rng| {
                redis.stop();
                pause(rng, 20, 3_000);
                redis.resume();
            }),
            9 => injector.inject("server killed, restarted empty", Loss::Restart, None, |rng| {
                redis.kill();
                pause(rng, 1, 1_500);
                redis.restart();
            }),
            10 => injector.inject("FLUSHALL", Loss::Everything, None, |_| {
                _ = redis.try_command(&["FLUSHALL"]);
            }),
            _ => injector.inject("clients killed by the server", Loss::Nothing, None, |rng| {
                let kinds = ["normal", "pubsub"];
                let kind = kinds[rng.random_range(0..kinds.len())];
                _ = redis.try_command(&["CLIENT", "KILL", "TYPE", kind]);
            }),
        }
    }
}

fn delay(rng: &mut StdRng, most: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..most))
}
