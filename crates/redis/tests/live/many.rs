//! Batches on a real server: what they cost it, and that they share their loads over processes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::Cache;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::catalog::options;

/// A database of which all processes ask, and every query to it.
#[derive(Clone, Default)]
struct Database(Arc<Mutex<Vec<Vec<u64>>>>);

/// A process: its cache, and the database of all.
#[derive(Clone)]
struct Pages {
    cache: Cache<u64, Option<String>>,
    database: Database,
}

impl Database {
    /// A process with a connection of its own to the server.
    async fn process(&self, server: &RedisServer) -> Pages {
        let store = options(server).connect().await.expect("a store");
        let cache = Cache::builder("item", store).ttl(Duration::from_secs(60)).build().unwrap();
        Pages { cache, database: self.clone() }
    }

    async fn query(self, skus: Vec<u64>) -> Result<HashMap<u64, String>, Infallible> {
        self.0.lock().unwrap().push(skus.clone());
        // Long enough for the other process to meet it.
        sleep(Duration::from_millis(50)).await;
        Ok(skus.into_iter().map(|sku| (sku, format!("item {sku}"))).collect())
    }

    fn queries(&self) -> Vec<Vec<u64>> {
        self.0.lock().unwrap().clone()
    }
}

async fn page(pages: &Pages, skus: impl IntoIterator<Item = u64>) -> Vec<String> {
    let database = pages.database.clone();
    let page = pages.cache.get_or_load_many(skus, move |skus| database.query(skus)).await;
    page.into_iter().map(|item| item.expect("an answer").expect("an item")).collect()
}

fn items(skus: impl IntoIterator<Item = u64>) -> Vec<String> {
    skus.into_iter().map(|sku| format!("item {sku}")).collect()
}

/// How many calls of a command clients and scripts have made.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let calls = server.info("commandstats", &format!("cmdstat_{command}"));
    let calls = calls.as_deref().and_then(|calls| calls.strip_prefix("calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn a_page_of_misses_is_one_query() {
    let server = RedisServer::start();
    let database = Database::default();
    let pages = database.process(&server).await;
    let before = calls(&server, "evalsha");
    assert_eq!(page(&pages, 0..100).await, items(0..100));
    assert_eq!(database.queries().iter().map(Vec::len).collect::<Vec<_>>(), [100]);
    assert_eq!(calls(&server, "evalsha") - before, 200, "a claim and a commit of each");
}

#[tokio::test]
async fn a_page_of_hits_is_a_handful_of_commands() {
    let server = RedisServer::start();
    let database = Database::default();
    let pages = database.process(&server).await;
    page(&pages, 0..100).await;
    let before = (calls(&server, "mget"), calls(&server, "evalsha"));
    assert_eq!(page(&pages, 0..100).await, items(0..100));
    let after = (calls(&server, "mget"), calls(&server, "evalsha"));
    assert_eq!(
        (after.0 - before.0, after.1 - before.1),
        (5, 0),
        "one alone, three of 32, and the others"
    );
    assert_eq!(database.queries().len(), 1);
}

#[tokio::test]
async fn pages_of_two_processes_that_overlap_load_each_item_once() {
    let server = RedisServer::start();
    let database = Database::default();
    let fleet = join_all((0..2).map(|_| database.process(&server))).await;
    for start in (0..1_000).step_by(100) {
        let here = start..start + 50;
        let there = start + 25..start + 75;
        let pages =
            tokio::join!(page(&fleet[0], here.clone()), page(&fleet[1], there.clone().rev()));
        assert_eq!(pages, (items(here), items(there.rev())));
    }
    let mut loaded = database.queries().concat();
    loaded.sort_unstable();
    let expected = (0..1_000).step_by(100).flat_map(|start| start..start + 75);
    assert_eq!(loaded, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_asked_for_on_many_threads_are_all_answered() {
    let server = RedisServer::start();
    let database = Database::default();
    let fleet = join_all((0..2).map(|_| database.process(&server))).await;
    let pages = (0..40).map(|number| {
        let pages = fleet[number as usize % 2].clone();
        tokio::spawn(async move {
            let skus = number * 5..number * 5 + 30;
            assert_eq!(page(&pages, skus.clone()).await, items(skus));
        })
    });
    join_all(pages.collect::<Vec<_>>())
        .await
        .into_iter()
        .for_each(|ended| ended.expect("no panic"));
    let mut loaded = database.queries().concat();
    loaded.sort_unstable();
    assert_eq!(loaded, (0..225).collect::<Vec<_>>());
    assert!(fleet.iter().all(|pages| pages.cache.in_flight() == 0));
}
