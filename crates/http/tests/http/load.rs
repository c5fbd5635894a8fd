//! A thousand concurrent connections of public load generators request a page that is not stored.
//!
//! `wrk` speaks HTTP/1.1 and `h2load` HTTP/2; `scripts/test` installs both.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::CACHE_CONTROL;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use axum::{Router, serve};
use bellwether::{MemoryStore, Wait};
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::proxy;

const CONNECTIONS: usize = 1000;

/// What no burst takes, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_http_1_connections_that_miss_together_cause_one_query() {
    let server = Server::start().await;
    // wrk ends when its time is over, not when all connections have their responses.
    let all = CONNECTIONS.to_string();
    let each = (CONNECTIONS / 2).to_string();
    let once = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/once.lua");
    let said = run(
        "wrk",
        &["-t2", "-d20s", "--timeout", "20s", "-c", &all, "-s", once, &server.url, "--", &each],
    )
    .await;
    assert!(!said.contains("Socket errors"), "{said}");
    assert!(!said.contains("Non-2xx"), "{said}");
    assert!(server.arrived() >= CONNECTIONS, "{said}");
    assert_eq!(server.queries(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_http_2_connections_that_miss_together_cause_one_query() {
    let server = Server::start().await;
    let connections = CONNECTIONS.to_string();
    let said =
        run("h2load", &["-t", "2", "-c", &connections, "-n", &connections, "-m", "1", &server.url])
            .await;
    assert!(said.contains("1000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert!(said.contains("Application protocol: h2c"), "{said}");
    assert_eq!(server.arrived(), CONNECTIONS, "{said}");
    assert_eq!(server.queries(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_to_a_proxy_cause_one_request_to_its_origin() {
    // The origin cannot see the waiters, so it does not wait for them.
    let origin = Server::start_waiting_for(1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/item/42", listener.local_addr().unwrap());
    let address = origin.url.parse().unwrap();
    let layer = patient(HttpCacheLayer::builder(MemoryStore::new(100))).build().unwrap();
    let proxy = tokio::spawn(async move { proxy::serve(listener, &address, &layer).await });
    let connections = CONNECTIONS.to_string();
    let said =
        run("h2load", &["-t", "2", "-c", &connections, "-n", &connections, "-m", "1", &url]).await;
    proxy.abort();
    assert!(said.contains("1000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert_eq!(origin.arrived(), 1, "{said}");
}

/// An axum server with the layer around a slow query.
struct Server {
    url: String,
    arrived: watch::Receiver<usize>,
    queries: Arc<AtomicUsize>,
}

impl Server {
    async fn start() -> Self {
        Self::start_waiting_for(CONNECTIONS).await
    }

    /// Its query is answered once this many requests have arrived.
    async fn start_waiting_for(crowd: usize) -> Self {
        allow_many_files();
        let (arrive, arrived) = watch::channel(0);
        let queries = Arc::new(AtomicUsize::new(0));
        let all = arrived.clone();
        let count = Arc::clone(&queries);
        let query = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let mut all = all.clone();
            async move {
                let waited = timeout(PATIENCE, all.wait_for(|arrived| *arrived >= crowd)).await;
                waited.expect("a crowd").expect("a server");
                ([(CACHE_CONTROL, "max-age=60")], "an item")
            }
        };
        let layer = patient(HttpCacheLayer::builder(MemoryStore::new(100))).build().unwrap();
        let counting = from_fn(move |request: Request, next: Next| {
            arrive.send_modify(|arrived| *arrived += 1);
            next.run(request)
        });
        let router = Router::new().route("/item/{sku}", get(query)).layer(layer).layer(counting);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/item/42", listener.local_addr().unwrap());
        tokio::spawn(async move { serve(listener, router).await });
        Self { url, arrived, queries }
    }

    fn arrived(&self) -> usize {
        *self.arrived.borrow()
    }

    fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

/// A wait limit for all connections, longer than they take to arrive.
fn patient(layer: HttpCacheLayerBuilder) -> HttpCacheLayerBuilder {
    layer.wait(Wait::at_most(PATIENCE)).load_timeout(PATIENCE)
}

/// Each connection is two files here if there is a proxy; the programs that we start inherit this.
fn allow_many_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = 4 * CONNECTIONS as u64;
    if current.is_some_and(|current| current < wanted) {
        let raised =
            Rlimit { current: Some(maximum.map_or(wanted, |most| most.min(wanted))), maximum };
        setrlimit(Resource::Nofile, raised).expect("more open files");
    }
}

/// What a program says.
async fn run(program: &str, arguments: &[&str]) -> String {
    let running = Command::new(program).args(arguments).kill_on_drop(true).output();
    let output = timeout(2 * PATIENCE, running).await.expect("in time");
    let Output { stdout, stderr, .. } =
        output.unwrap_or_else(|error| panic!("{program}: {error}; `scripts/test` installs it"));
    [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}
