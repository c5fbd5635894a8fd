//! A hit in a cluster of three nodes, by many callers at once, against the same on one server.
//!
//! Each caller has a key of its own, so a batch of lookups is one command on one server, and in the
//! cluster a pipeline to each node, with a command per key. The one server runs twice: the deviation
//! of its ratio to itself from 1 is the error of the other ratios. *Bare* are `GET`s of the JSON over
//! one multiplexed connection of redis-rs to each server, and the program knows the owner of each
//! key: what the same machine loses by three servers without this crate.

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::slice;
use std::time::Duration;

use bellwether::{Key, ReadThroughLayer};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::{RedisCluster, RedisServer};
use futures_util::future::{BoxFuture, join_all};
use redis::AsyncCommands;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::cpu::cpu_time_of;
use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};
use crate::product::{Product, json};

pub(crate) fn run(effort: Effort) {
    let effort = effort.in_long_turns();
    let server = RedisServer::start();
    let cluster = RedisCluster::start();
    let runtime = Runtime::new().expect("a runtime");
    for (callers, least) in [(64, 0.9), (16, 0.65)] {
        let single = slice::from_ref(&server);
        let one = runtime.block_on(Hits::on(&server.url(), single));
        let again = runtime.block_on(Hits::on(&server.url(), single));
        let three = runtime.block_on(Hits::on(&cluster.url(), cluster.nodes()));
        let bare_one = runtime.block_on(Hits::bare(single, |_| 0, callers));
        let owner = |name: &str| cluster.owner(name);
        let bare_three = runtime.block_on(Hits::bare(cluster.nodes(), owner, callers));
        let mut race = Race::new("cluster", format!("{callers} callers, own keys"));
        let mut enter = |name: &str, hits: Hits| {
            let runtime = &runtime;
            race.enter(name, callers, move |times| hits.take(runtime, callers, times))
        };
        let one = enter("one server", one);
        let again = enter("one server again", again);
        let three = enter("three nodes", three);
        let bare_one = enter("bare GET, one server", bare_one);
        let bare_three = enter("bare GET, three nodes", bare_three);
        let outcome = race.run(effort);
        outcome.print(&[one, three, bare_one, bare_three]);
        outcome.print_rate(again, one, Wanted::Nothing);
        outcome.print_rate(three, one, Wanted::AtLeast(least));
        outcome.print_rate(bare_three, bare_one, Wanted::Nothing);
        outcome.print_rate(three, bare_three, Wanted::AtLeast(0.8));
        outcome.print_cpu(&[one, three, bare_one, bare_three]);
    }
}

/// Hits, one after the other, of each of several callers.
struct Hits {
    caller: Box<dyn Fn(u64, usize) -> BoxFuture<'static, ()>>,
    /// The processes of the servers.
    servers: Vec<u32>,
}

impl Hits {
    /// Through a layer.
    async fn on(url: &str, servers: &[RedisServer]) -> Self {
        // Wide, so that a busy machine does not decide what is measured.
        let options = RedisOptions::new(url, "test").expect("an address");
        let options = options.timeout(Duration::from_secs(5));
        let store = options.connect().await.expect("a store");
        let product = |sku| ready(Ok::<_, Infallible>(Product::of_json_len(sku, JSON_LEN)));
        let layer = ReadThroughLayer::builder(store, |sku: &u64| Key::of("item").with(*sku));
        let catalog =
            layer.ttl(Duration::from_secs(3600)).build().unwrap().layer(service_fn(product));
        let caller = move |sku, times| -> BoxFuture<'static, ()> {
            let mut catalog = catalog.clone();
            Box::pin(async move {
                for _ in 0..times {
                    black_box(catalog.call(sku).await.expect("an answer"));
                }
            })
        };
        Self { caller: Box::new(caller), servers: pids(servers) }
    }

    /// `GET`s of as many names, each from the server that owns it.
    async fn bare(servers: &[RedisServer], owner: impl Fn(&str) -> usize, names: usize) -> Self {
        let connect = async |server: &RedisServer| {
            let client = redis::Client::open(server.url()).expect("an address");
            client.get_multiplexed_async_connection().await.expect("a server")
        };
        let connections = join_all(servers.iter().map(connect)).await;
        let mut owners = Vec::new();
        for sku in 0..names as u64 {
            let mut connection = connections[owner(&name(sku))].clone();
            let bytes = json(&Product::of_json_len(sku, JSON_LEN));
            let () = connection.set(name(sku), bytes).await.expect("a server");
            owners.push(connection);
        }
        let caller = move |sku: u64, times| -> BoxFuture<'static, ()> {
            let mut connection = owners[sku as usize].clone();
            Box::pin(async move {
                let name = name(sku);
                for _ in 0..times {
                    black_box(connection.get::<_, Vec<u8>>(&name).await.expect("an answer"));
                }
            })
        };
        Self { caller: Box::new(caller), servers: pids(servers) }
    }

    fn take(&self, runtime: &Runtime, callers: usize, times: usize) -> Took {
        let all: Vec<_> = (0..callers as u64).map(|sku| (self.caller)(sku, times)).collect();
        let used = cpu_time_of(&self.servers);
        let took = timed(|| {
            runtime.block_on(async {
                all.into_iter().collect::<JoinSet<()>>().join_all().await;
            });
        });
        took.with_servers(cpu_time_of(&self.servers).saturating_sub(used))
    }
}

fn pids(servers: &[RedisServer]) -> Vec<u32> {
    servers.iter().map(RedisServer::pid).collect()
}

fn name(sku: u64) -> String {
    format!("by:test:{{{}}}", Key::of("item").with(sku).digest())
}

const JSON_LEN: usize = 1024;
