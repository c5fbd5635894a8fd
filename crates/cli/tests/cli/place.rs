//! Where the tool is run: servers, a running process, and the command line that leads to them.

use std::any::Any;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, End, Lease, Settled, Store, Tags, Value};
use bellwether::trace::TraceParent;
use bellwether::{Key, Lifetimes, Tag};
use bellwether_redis::{RedisOptions, RedisStore, RedisTls};
use bellwether_testkit::servers::{Authority, RedisCluster, RedisServer, SentinelFleet};
use serde_json::Value as Json;
use tokio::process::Command;

const NAMESPACE: &str = "shop";

/// The trace of each load.
pub(crate) const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) struct Place {
    pub(crate) url: String,
    ca: Option<PathBuf>,
    _servers: Box<dyn Any>,
}

impl Place {
    pub(crate) fn single() -> Self {
        let server = RedisServer::start();
        Self { url: server.url(), ca: None, _servers: Box::new(server) }
    }

    pub(crate) fn cluster() -> Self {
        let cluster = RedisCluster::start();
        Self { url: cluster.url(), ca: None, _servers: Box::new(cluster) }
    }

    pub(crate) async fn sentinel() -> Self {
        let fleet = SentinelFleet::start().await;
        Self { url: fleet.url(), ca: None, _servers: Box::new(fleet) }
    }

    pub(crate) fn tls() -> Self {
        let authority = Authority::new("ours");
        let server = RedisServer::start_tls(&authority.local());
        let ca = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let ca = ca.join(format!("ca-{}.crt", server.tls_port()));
        fs::write(&ca, authority.pem()).expect("a file");
        Self { url: server.tls_url(), ca: Some(ca), _servers: Box::new(server) }
    }

    /// The store of a process.
    pub(crate) fn options(&self) -> RedisOptions {
        let options = RedisOptions::new(&self.url, NAMESPACE).expect("an address");
        match &self.ca {
            Some(ca) => options.tls(RedisTls::ca_file(ca)),
            None => options,
        }
    }

    pub(crate) async fn store(&self) -> RedisStore {
        self.options().connect().await.expect("a store")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = bellwether();
        command.env("BELLWETHER_REDIS_URL", &self.url).args(["--namespace", NAMESPACE, "--json"]);
        command.args(self.ca.iter().flat_map(|ca| ["--ca".into(), ca.clone()])).args(args);
        command
    }

    /// What a command prints as JSON.
    pub(crate) async fn run(&self, args: &[&str]) -> Json {
        json(&succeeded(self.command(args).output().await.expect("it runs")))
    }
}

pub(crate) fn bellwether() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command.kill_on_drop(true);
    command
}

pub(crate) fn succeeded(output: Output) -> String {
    let Output { status, stdout, stderr } = output;
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("a text")
}

pub(crate) fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn item(sku: u64) -> Key {
    Key::of("item").with(sku)
}

pub(crate) fn shelf(number: u64) -> Tag {
    Tag::of("shelf").with("berlin").with(number)
}

/// Takes the lease of an item, as a leader does.
pub(crate) async fn lead(store: &RedisStore, key: Key, tags: &[Tag]) -> Lease {
    let tags = Tags::new(tags.iter().cloned()).expect("few tags");
    let claim = Claim::new(key).tagged(tags).traced(TraceParent::parse(TRACE));
    match store.acquire(claim, Duration::from_secs(3), Accept::Fresh).await.expect("an answer") {
        Acquire::Lead { lease, .. } => lease,
        other => panic!("no lease: {other:?}"),
    }
}

/// Stores "bread" for an item, fresh for a minute and then stale for another one.
pub(crate) async fn fill(store: &RedisStore, key: Key, tags: &[Tag]) {
    fill_by(1, store, key, tags).await;
}

/// Stores a value of a codec.
pub(crate) async fn fill_by(codec: u8, store: &RedisStore, key: Key, tags: &[Tag]) {
    let lease = lead(store, key, tags).await;
    let value = Value::new(b"bread".to_vec().into());
    let lifetimes = Lifetimes::fresh_for(MINUTE).stale_if_error(MINUTE);
    let settled = store.settle(End::Commit(lease, Draft::new(value, codec, lifetimes))).await;
    assert_eq!(settled.expect("an answer"), Settled::Done);
}
