//! What the guide `operations` does by hand.

use std::fs;
use std::time::Duration;

use bellwether::Lifetimes;
use bellwether::store::{Accept, Acquire, Claim, Draft, Lease, Settled, Store, Value};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt;
use bellwether_testkit::servers::RedisServer;

use crate::catalog::{key, name, options};

const MINUTE: Duration = Duration::from_secs(60);

/// The guide is part of another package.
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/guide/operations.md");

/// The script that the guide gives to `redis-cli`.
fn script_of_the_guide() -> String {
    let guide = fs::read_to_string(GUIDE).expect("the guide");
    let (_, script) = guide.split_once("EVAL \"\n").expect("a script");
    script.split_once('"').expect("an end").0.to_owned()
}

fn remove_by_hand(server: &RedisServer, entry: &str) {
    let names = ["", ":lease", ":watermark", ":failed"].map(|suffix| format!("{entry}{suffix}"));
    let client = redis::Client::open(server.url()).expect("a client");
    let mut connection = client.get_connection().expect("a connection");
    let script = redis::Script::new(&script_of_the_guide());
    let mut call = script.prepare_invoke();
    names.iter().for_each(|name| {
        call.key(name);
    });
    let () = call.invoke(&mut connection).expect("it ran");
}

async fn lease(store: &RedisStore) -> Lease {
    let acquired = store.acquire(Claim::new(key(1)), MINUTE, Accept::Nothing).await;
    let Ok(Acquire::Lead { lease, .. }) = acquired else { panic!("no lease: {acquired:?}") };
    lease
}

async fn commit(store: &RedisStore, lease: Lease) -> Settled {
    let draft = Draft::new(Value::new("value".into()), 1, Lifetimes::fresh_for(MINUTE));
    store.commit(lease, draft).await.expect("an answer")
}

#[tokio::test]
async fn an_entry_that_is_removed_by_hand_is_gone_and_a_load_under_way_stores_nothing() {
    let server = RedisServer::start();
    let store = options(&server).connect().await.expect("a store");
    assert_eq!(commit(&store, lease(&store).await).await, Settled::Done);
    let under_way = lease(&store).await;

    remove_by_hand(&server, &name(1));

    assert!(store.find(key(1)).await.expect("an answer").is_none());
    assert_eq!(commit(&store, under_way).await, Settled::Superseded);
    assert!(store.find(key(1)).await.expect("an answer").is_none());
    let later = lease(&store).await;
    assert_eq!(commit(&store, later).await, Settled::Done);
}
