//! The trace of a load travels beside its lease, so that callers of other processes find it.

use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Accept, Acquire, Claim, Lease, Renew, Store};
use bellwether::trace::TraceParent;
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisServer;

const TERM: Duration = Duration::from_secs(60);
/// Longer than a busy machine takes for a request.
const PATIENT: Duration = Duration::from_secs(10);
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn key() -> Key {
    Key::of("item").with(1)
}

async fn store(server: &RedisServer) -> RedisStore {
    let options = RedisOptions::new(&server.url(), "test").expect("options");
    options.timeout(PATIENT).connect().await.expect("a store")
}

async fn lead(store: &RedisStore, trace: Option<&str>) -> Lease {
    let claim = Claim::new(key()).traced(trace.and_then(TraceParent::parse));
    match store.acquire(claim, TERM, Accept::Fresh).await.expect("an answer") {
        Acquire::Lead { lease, .. } => lease,
        other => panic!("{other:?}"),
    }
}

/// What a caller of another process is told. `None` if it has the lease.
async fn told(store: &RedisStore) -> Option<Option<TraceParent>> {
    let claim = Claim::new(key());
    match store.acquire(claim.clone(), TERM, Accept::Fresh).await.expect("an answer") {
        Acquire::Busy { trace, .. } => Some(trace),
        Acquire::Lead { .. } => {
            store.abandon(claim).await.expect("an answer");
            None
        }
        other => panic!("{other:?}"),
    }
}

fn lease_name() -> String {
    format!("bw:test:{{{}}}:lease", key().digest())
}

#[tokio::test]
async fn a_caller_of_another_process_is_told_the_trace_of_the_load() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let lease = lead(&ours, Some(TRACE)).await;
    assert_eq!(told(&other).await, Some(TraceParent::parse(TRACE)));
    assert_eq!(ours.renew(&lease, TERM * 2).await.expect("an answer"), Renew::Held);
    assert_eq!(told(&other).await, Some(TraceParent::parse(TRACE)), "a renewal keeps it");
    // The same claim has the lease still.
    let again = ours.acquire(lease.claim.clone(), TERM, Accept::Fresh).await;
    assert!(matches!(again, Ok(Acquire::Lead { .. })), "{again:?}");
    ours.abandon(lease.claim).await.expect("an answer");
    assert_eq!(told(&other).await, None);
}

#[tokio::test]
async fn without_a_trace_a_lease_takes_no_more_bytes() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    for (trace, bytes) in [(None, 32), (Some(TRACE), 87)] {
        let lease = lead(&ours, trace).await;
        let length = server.command(&["STRLEN", &lease_name()]);
        assert_eq!(format!("{length:?}"), format!("Integer({bytes})"));
        assert_eq!(told(&other).await, Some(trace.and_then(TraceParent::parse)));
        ours.abandon(lease.claim).await.expect("an answer");
    }
}

/// Bytes of another program, or of a process with a fault.
#[tokio::test]
async fn a_trace_that_makes_no_sense_is_left_out_and_one_that_is_too_long_is_no_lease() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    for (tail, is_lease) in
        [("x".repeat(55), true), (TRACE.to_uppercase(), true), ("x".repeat(56), false)]
    {
        let lease = lead(&ours, None).await;
        // Appends to the lease, and leaves its time.
        server.command(&["APPEND", &lease_name(), &tail]);
        assert_eq!(told(&other).await, is_lease.then_some(None), "{tail}");
        ours.abandon(lease.claim).await.expect("an answer");
    }
}
