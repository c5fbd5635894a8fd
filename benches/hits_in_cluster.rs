//! A hit in a cluster of three nodes, by many callers at once, against the same on one server.
//!
//! Each caller has a key of its own, so a batch of lookups is one command on one server, and a
//! pipeline to each node of the cluster. The one server runs twice: the deviation of its ratio to
//! itself from 1 is the error of the other ratio.

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::time::Duration;

use bellwether::{Key, ReadThroughLayer, RedisOptions};
use bellwether_testkit::servers::{RedisCluster, RedisServer};
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};
use crate::product::Product;

pub(crate) fn run(effort: Effort) {
    let effort = effort.in_long_turns();
    let server = RedisServer::start();
    let cluster = RedisCluster::start();
    let runtime = Runtime::new().expect("a runtime");
    for (callers, least) in [(64, 0.9), (16, 0.65)] {
        let one = runtime.block_on(Hits::on(&server.url()));
        let again = runtime.block_on(Hits::on(&server.url()));
        let three = runtime.block_on(Hits::on(&cluster.url()));
        let mut race = Race::new("cluster", format!("{callers} callers, own keys"));
        let mut enter = |name: &str, hits: Hits| {
            let runtime = &runtime;
            race.enter(name, callers, move |times| hits.take(runtime, callers, times))
        };
        let one = enter("one server", one);
        let again = enter("one server again", again);
        let three = enter("three nodes", three);
        let outcome = race.run(effort);
        outcome.print(&[one, three]);
        outcome.print_rate(again, one, Wanted::Nothing);
        outcome.print_rate(three, one, Wanted::AtLeast(least));
        outcome.print_more_cpu(three, one);
    }
}

/// Hits through a layer.
struct Hits(Box<dyn Fn(u64, usize) -> BoxFuture<'static, ()>>);

impl Hits {
    async fn on(url: &str) -> Self {
        // Wide, so that a busy machine does not decide what is measured.
        let options = RedisOptions::new(url).expect("an address");
        let options = options.timeout(Duration::from_secs(5)).expect("a timeout");
        let store = options.connect().await.expect("a store");
        let product = |sku| ready(Ok::<_, Infallible>(Product::of_json_len(sku, JSON_LEN)));
        let layer = ReadThroughLayer::new(store, |sku: &u64| Key::of("item").with(*sku));
        let catalog = layer.ttl(Duration::from_secs(3600)).layer(service_fn(product));
        Self(Box::new(move |sku, times| {
            let mut catalog = catalog.clone();
            Box::pin(async move {
                for _ in 0..times {
                    black_box(catalog.call(sku).await.expect("an answer"));
                }
            })
        }))
    }

    fn take(&self, runtime: &Runtime, callers: usize, times: usize) -> Took {
        let all: Vec<_> = (0..callers as u64).map(|sku| (self.0)(sku, times)).collect();
        timed(|| {
            runtime.block_on(async {
                all.into_iter().collect::<JoinSet<()>>().join_all().await;
            });
        })
    }
}

const JSON_LEN: usize = 1024;
