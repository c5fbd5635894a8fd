//! Tags in Redis: their epochs, whatever the server forgets, and what a lookup costs.

use std::future::Future;
use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Lease, Peek, Settled, Store, Tags, Value};
use bellwether::{Lifetimes, Tag};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::{RedisServer, Reply};
use futures_util::future::join_all;
use redis::{Commands, Connection, Script};
use tokio::time::{sleep, timeout};

use crate::catalog::{key, name, options};
use crate::near::near;

const MINUTE: Duration = Duration::from_secs(60);

static NONE: Tags = Tags::none();

fn tag(number: u64) -> Tag {
    Tag::of("shelf").with(number)
}

fn tags(numbers: impl IntoIterator<Item = u64>) -> Tags {
    Tags::new(numbers.into_iter().map(tag)).expect("few tags")
}

fn tag_name(number: u64) -> String {
    format!("bw:live:~tag:{{{}}}", tag(number).digest())
}

async fn lead(store: &impl Store, sku: u64, tags: &Tags) -> Lease {
    let claim = Claim::new(key(sku)).tagged(tags.clone());
    match store.acquire(claim, MINUTE, Accept::Fresh).await.expect("an answer") {
        Acquire::Lead { lease, .. } => lease,
        other => panic!("no lease of {sku}, but {other:?}"),
    }
}

async fn commit(store: &impl Store, lease: Lease, windows: Lifetimes, after: &Tags) -> Settled {
    let draft = Draft::new(Value::new("7".into()), 1, windows).tagged(after.clone());
    store.commit(lease, draft).await.expect("an answer")
}

async fn put(store: &impl Store, sku: u64, tags: &Tags) {
    let lease = lead(store, sku, tags).await;
    let windows = Lifetimes::fresh_for(MINUTE);
    assert_eq!(commit(store, lease, windows, &Tags::none()).await, Settled::Done);
}

async fn finds(store: &impl Store, sku: u64, tags: &Tags) -> bool {
    store.lookup(key(sku), tags.clone()).await.expect("an answer").is_some()
}

fn copied(store: &RedisStore, sku: u64) -> bool {
    matches!(store.peek(&key(sku)), Peek::Found(_))
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let calls = server.info("commandstats", &format!("cmdstat_{command}"));
    let calls = calls.as_deref().and_then(|calls| calls.strip_prefix("calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// The commands of clients that an operation sends.
async fn cost<T>(server: &RedisServer, command: &str, of: impl Future<Output = T>) -> (T, u64) {
    let before = calls(server, command);
    let done = of.await;
    (done, calls(server, command) - before)
}

async fn store(server: &RedisServer) -> RedisStore {
    options(server).connect().await.expect("a store")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = timeout(Duration::from_secs(20), async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    patience.await.unwrap_or_else(|_| panic!("{what} did not happen"));
}

#[tokio::test]
async fn a_hit_reads_the_entry_and_the_tags_of_the_request_as_one_command() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let four = tags(0..4);
    put(&store, 1, &four).await;
    let (found, commands) = cost(&server, "mget", finds(&store, 1, &four)).await;
    assert_eq!((found, commands), (true, 1));
    let (found, commands) = cost(&server, "mget", finds(&store, 1, &tags(0..1))).await;
    assert_eq!((found, commands), (true, 2), "three tags are known from the entry only");
    let (found, commands) = cost(&server, "mget", finds(&store, 1, &tags(0..1))).await;
    assert_eq!((found, commands), (true, 1), "by now, they are expected");
    put(&store, 2, &Tags::none()).await;
    let (found, commands) = cost(&server, "mget", finds(&store, 2, &Tags::none())).await;
    assert_eq!((found, commands), (true, 1));
}

#[tokio::test]
async fn concurrent_lookups_read_the_tags_that_their_entries_had_with_them() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for sku in 0..40 {
        put(&store, sku, &tags(4 * sku..4 * sku + 4)).await;
        assert!(finds(&store, sku, &Tags::none()).await);
    }
    let all = join_all((0..33).map(|sku| finds(&store, sku, &NONE)));
    let (found, commands) = cost(&server, "mget", all).await;
    assert_eq!((found, commands), (vec![true; 33], 2), "one alone, and 32 together");
    store.invalidate_tag(tag(4 * 7 + 2)).await.expect("invalidated");
    let found = join_all((0..33).map(|sku| finds(&store, sku, &NONE))).await;
    assert_eq!(found, (0..33).map(|sku| sku != 7).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_invalidation_between_two_hits_reaches_the_tags_that_only_the_entry_has() {
    let server = RedisServer::start();
    let (store, other) = (store(&server).await, store(&server).await);
    for (sku, invalidator) in [(1, &store), (2, &other)] {
        put(&store, sku, &tags([1, 2])).await;
        for _ in 0..3 {
            assert!(finds(&store, sku, &NONE).await);
        }
        invalidator.invalidate_tag(tag(2)).await.expect("invalidated");
        assert!(!finds(&store, sku, &NONE).await);
        put(&other, sku, &tags([1, 2])).await;
        assert!(finds(&store, sku, &NONE).await);
        server.command(&["DEL", &tag_name(1)]);
        assert!(!finds(&store, sku, &NONE).await, "the epoch of a tag is forgotten");
    }
}

#[tokio::test]
async fn an_entry_that_got_other_tags_is_judged_by_them() {
    let server = RedisServer::start();
    let (store, other) = (store(&server).await, store(&server).await);
    for after in [tags([2, 3]), tags([3]), tags([1, 2, 3, 4])] {
        put(&other, 1, &tags([1, 2])).await;
        assert!(finds(&store, 1, &NONE).await);
        other.invalidate(key(1)).await.expect("invalidated");
        put(&other, 1, &after).await;
        for expected in [2, 1] {
            let (found, commands) = cost(&server, "mget", finds(&store, 1, &NONE)).await;
            assert_eq!((found, commands), (true, expected), "{after:?}");
        }
        other.invalidate_tag(tag(3)).await.expect("invalidated");
        assert!(!finds(&store, 1, &NONE).await);
    }
    put(&other, 1, &tags([1, 2])).await;
    assert!(finds(&store, 1, &NONE).await);
    other.invalidate(key(1)).await.expect("invalidated");
    put(&other, 1, &NONE).await;
    other.invalidate_tag(tag(1)).await.expect("invalidated");
    assert!(finds(&store, 1, &NONE).await, "of a tag that it had before");
}

/// It may be that of an entry that was replaced.
#[tokio::test]
async fn an_expected_tag_that_cannot_be_read_fails_one_lookup_only() {
    let server = RedisServer::start();
    let (store, other) = (store(&server).await, store(&server).await);
    put(&other, 1, &tags([1])).await;
    assert!(finds(&store, 1, &NONE).await);
    other.invalidate(key(1)).await.expect("invalidated");
    put(&other, 1, &tags([2])).await;
    server.command(&["ACL", "SETUSER", "default", "-pexpire"]);
    store.invalidate_tag(tag(1)).await.expect_err("not permitted");
    // Nothing is read over an invalidation that is to be repeated.
    store.lookup(key(1), NONE.clone()).await.expect_err("not permitted");
    assert!(finds(&store, 1, &NONE).await);
}

#[tokio::test]
async fn an_invalidation_writes_one_name_however_many_entries_there_are() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for sku in 0..100 {
        put(&store, sku, &tags([1])).await;
    }
    let Reply::Integer(before) = server.command(&["DBSIZE"]) else { panic!("no size") };
    assert_eq!(before, 101, "a hundred entries and a tag");
    let (_, sent) = cost(&server, "evalsha", store.invalidate_tag(tag(1))).await;
    let (_, written) = cost(&server, "set", store.invalidate_tag(tag(1))).await;
    assert_eq!((sent, written), (1, 1));
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(before));
    for sku in 0..100 {
        assert!(!finds(&store, sku, &tags([1])).await);
    }
}

#[tokio::test]
async fn a_tag_lives_an_hour_longer_than_its_longest_entry() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let left = || match server.command(&["PTTL", &tag_name(1)]) {
        Reply::Integer(millis) => Duration::from_millis(u64::try_from(millis).expect("a life")),
        other => panic!("{other:?}"),
    };
    let day = MINUTE * 60 * 24;
    let lease = lead(&store, 1, &tags([1])).await;
    assert_eq!(server.command(&["STRLEN", &tag_name(1)]), Reply::Integer(16));
    commit(&store, lease, Lifetimes::fresh_for(day), &Tags::none()).await;
    assert!(left() > day, "{:?}", left());
    put(&store, 2, &tags([1])).await;
    store.invalidate_tag(tag(1)).await.expect("invalidated");
    assert!(left() > day && left() <= day + MINUTE * 60, "{:?}", left());
}

#[tokio::test]
async fn an_evicted_tag_costs_a_load_and_never_gives_out_what_was_invalidated() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let one = tags([1]);
    put(&store, 1, &one).await;
    server.command(&["DEL", &tag_name(1)]);
    assert!(!finds(&store, 1, &one).await && !finds(&store, 1, &Tags::none()).await);
    // Another key makes the tag again, and the old entry stays as it is.
    put(&store, 2, &one).await;
    assert!(!finds(&store, 1, &one).await && finds(&store, 2, &one).await);
    put(&store, 1, &one).await;
    assert!(finds(&store, 1, &one).await);
}

#[tokio::test]
async fn a_tag_that_is_evicted_during_a_load_refuses_its_commit() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let windows = Lifetimes::fresh_for(MINUTE);
    for made_again in [false, true] {
        let lease = lead(&store, 1, &tags([1])).await;
        store.invalidate_tag(tag(1)).await.expect("invalidated");
        server.command(&["DEL", &tag_name(1)]);
        if made_again {
            put(&store, 2, &tags([1])).await;
        }
        assert_eq!(commit(&store, lease, windows, &Tags::none()).await, Settled::Superseded);
        assert!(!finds(&store, 1, &Tags::none()).await);
    }
}

#[tokio::test]
async fn bytes_that_are_no_tag_are_replaced() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for foreign in [&["SET", &tag_name(1), "not ours"], &["LPUSH", &tag_name(1), "nor this"]] {
        put(&store, 1, &tags([1])).await;
        server.command(&["DEL", &tag_name(1)]);
        server.command(foreign);
        assert!(!finds(&store, 1, &tags([1])).await);
        store.invalidate_tag(tag(1)).await.expect("invalidated");
        server.command(&["DEL", &tag_name(1)]);
        server.command(foreign);
    }
    put(&store, 1, &tags([1])).await;
    assert!(finds(&store, 1, &tags([1])).await);
}

#[tokio::test]
async fn a_clock_that_is_set_back_repeats_no_epoch() {
    let server = RedisServer::start_with_clock(0, &[]);
    let store = store(&server).await;
    let client = redis::Client::open(server.url()).expect("a client");
    let mut plain = client.get_connection().expect("a connection");
    let mut epoch = || plain.get::<_, Vec<u8>>(tag_name(1)).expect("a tag");
    put(&store, 1, &tags([1])).await;
    store.invalidate_tag(tag(1)).await.expect("invalidated");
    let before = epoch();
    server.turn_clock(-3600);
    store.invalidate_tag(tag(1)).await.expect("invalidated");
    assert!(epoch() > before, "the next epoch is above the last one");
    assert!(!finds(&store, 1, &tags([1])).await);
    put(&store, 1, &tags([1])).await;
    assert!(finds(&store, 1, &tags([1])).await);
    store.invalidate_tag(tag(1)).await.expect("invalidated");
    assert!(!finds(&store, 1, &tags([1])).await);
}

#[tokio::test]
async fn a_near_hit_with_tags_sends_no_command() {
    let server = RedisServer::start();
    let (store, other) =
        (near(options(&server)).connect().await.expect("a store"), store(&server).await);
    for (sku, asked) in [(1, tags([1, 2])), (2, Tags::none())] {
        put(&other, sku, &tags([1, 2])).await;
        assert!(finds(&store, sku, &asked).await);
        assert!(copied(&store, sku), "the tags of the request, or of the entry only");
    }
}

#[tokio::test]
async fn a_tag_that_another_process_invalidates_ends_the_copies_of_its_entries() {
    let server = RedisServer::start();
    let (store, other) =
        (near(options(&server)).connect().await.expect("a store"), store(&server).await);
    put(&other, 1, &tags([1, 2])).await;
    put(&other, 2, &tags([2])).await;
    assert!(finds(&store, 1, &tags([1, 2])).await && finds(&store, 2, &Tags::none()).await);
    other.invalidate_tag(tag(1)).await.expect("invalidated");
    until("the message", || !copied(&store, 1)).await;
    assert!(!finds(&store, 1, &tags([1, 2])).await);
    // The copy of another entry may share a counter, and is made again then.
    assert!(finds(&store, 2, &Tags::none()).await && copied(&store, 2));
    other.expire_tag(tag(2), Duration::ZERO).await.expect("expired");
    until("the message", || !copied(&store, 2)).await;
    assert!(!finds(&store, 2, &Tags::none()).await, "it has no stale window");
}

/// Copies of entries with a tag in one process, and another process.
async fn with_copies(server: &RedisServer) -> (RedisStore, RedisStore) {
    let near = near(options(server)).connect().await.expect("a store");
    let other = store(server).await;
    for sku in 1..=3 {
        put(&other, sku, &tags([1])).await;
        assert!(finds(&near, sku, &tags([1])).await && copied(&near, sku));
    }
    (near, other)
}

/// Has the server drop the row of a tag in its tracking table, and report that as a change of the tag.
async fn drop_row(server: &RedisServer, store: &RedisStore, number: u64) {
    let tracked = || server.info("stats", "tracking_total_keys").expect("a number");
    let before = tracked();
    // Redis drops rows of its own choice. It treats a name whose life is set in the same way.
    assert_eq!(server.command(&["PEXPIRE", &tag_name(number), "3600000"]), Reply::Integer(1));
    assert_ne!(tracked(), before);
    until("the message", || !copied(store, 1)).await;
}

#[tokio::test]
async fn a_dropped_row_of_a_tag_ends_no_copy_whose_tag_is_unchanged() {
    let server = RedisServer::start();
    let (store, _) = with_copies(&server).await;
    for _ in 0..3 {
        drop_row(&server, &store, 1).await;
        assert!((1..=3).all(|sku| !copied(&store, sku)), "the tag may have changed");
        assert!(finds(&store, 2, &tags([1])).await);
        assert!((1..=3).all(|sku| copied(&store, sku)), "one lookup has read it");
    }
}

#[tokio::test]
async fn a_tag_that_changes_while_its_row_is_dropped_ends_the_copies_of_its_entries() {
    let server = RedisServer::start();
    let (store, other) = with_copies(&server).await;
    drop_row(&server, &store, 1).await;
    other.invalidate_tag(tag(1)).await.expect("invalidated");
    put(&other, 2, &tags([1])).await;
    assert!(finds(&store, 2, &tags([1])).await && copied(&store, 2));
    assert!(!copied(&store, 1) && !copied(&store, 3));
    other.invalidate_tag(tag(1)).await.expect("invalidated");
    until("the message", || !copied(&store, 2)).await;
}

#[tokio::test]
async fn a_tag_that_is_read_again_is_tracked_again() {
    let server = RedisServer::start();
    let (store, other) = with_copies(&server).await;
    drop_row(&server, &store, 1).await;
    assert!(finds(&store, 2, &tags([1])).await && copied(&store, 1));
    other.invalidate_tag(tag(1)).await.expect("invalidated");
    until("the message", || (1..=3).all(|sku| !copied(&store, sku))).await;
}

#[tokio::test]
async fn an_invalidation_by_this_process_ends_its_copies_before_it_returns() {
    let server = RedisServer::start();
    let store = near(options(&server)).connect().await.expect("a store");
    for round in 0..200 {
        put(&store, round, &tags([1])).await;
        assert!(finds(&store, round, &tags([1])).await);
        store.invalidate_tag(tag(1)).await.expect("invalidated");
        assert!(!copied(&store, round), "round {round}");
    }
}

/// What a version whose envelopes are newer leaves in Redis, and what it does to what this one leaves.
#[tokio::test]
async fn a_rolling_upgrade_works_both_ways() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let client = redis::Client::open(server.url()).expect("a client");
    let mut new = client.get_connection().expect("a connection");
    let sealed = |new: &mut Connection, sku| new.get::<_, Vec<u8>>(name(sku)).expect("an entry");

    // The new version finds an entry of this one.
    put(&store, 1, &tags([1])).await;
    let older = sealed(&mut new, 1);
    assert_eq!(&older[..4], b"BWE\x01");
    assert_eq!(new_acquire(&mut new, 1, b"1")[0], redis::Value::Int(1), "the new one finds it");

    // It replaces the entry.
    let reply = new_acquire(&mut new, 1, b"0");
    assert_eq!(reply[0], redis::Value::Int(3), "it leads");
    let redis::Value::Int(fence) = reply[3] else { panic!("no fence: {reply:?}") };
    let mut newer = older.clone();
    newer[3] = 2;
    newer[28..36].copy_from_slice(&fence.to_be_bytes());
    let stored = new_script("commit", 1)
        .arg(TOKEN)
        .arg(&newer)
        .arg(60_000)
        .arg(fence)
        .arg(fence)
        .arg(0)
        .invoke::<i64>(&mut new)
        .expect("a reply");
    assert_eq!(stored, 1, "stored");
    assert_eq!(new_acquire(&mut new, 1, b"1")[0], redis::Value::Int(1), "the new one finds it");

    // This version takes the newer entry for none, loads, and leaves it alone.
    assert!(!finds(&store, 1, &tags([1])).await);
    let lease = lead(&store, 1, &tags([1])).await;
    let windows = Lifetimes::fresh_for(MINUTE);
    assert_eq!(commit(&store, lease, windows, &Tags::none()).await, Settled::Superseded);
    assert_eq!(sealed(&mut new, 1), newer);
}

const TOKEN: &[u8] = b"token of the new";

/// A script of a version that can read envelopes of version 2, too.
fn new_script(which: &str, sku: u64) -> redis::ScriptInvocation<'static> {
    let text = match which {
        "acquire" => include_str!("../../src/acquire.lua"),
        _ => include_str!("../../src/commit.lua"),
    };
    let prelude = include_str!("../../src/prelude.lua");
    let newer = prelude.replace("local latest = 1\n", "local latest = 2\n");
    assert_ne!(newer, prelude);
    let shared = include_str!("../../../redis-client/src/prelude.lua");
    let script: &'static Script =
        Box::leak(Box::new(Script::new(&[shared, &newer, text].join("\n"))));
    let mut invocation = script.prepare_invoke();
    for suffix in ["", ":lease", ":watermark", ":failed"] {
        invocation.key(format!("{}{suffix}", name(sku)));
    }
    invocation
}

fn new_acquire(new: &mut Connection, sku: u64, accept: &[u8]) -> Vec<redis::Value> {
    let mut invocation = new_script("acquire", sku);
    invocation.arg(TOKEN).arg(10_000).arg(accept).arg("").arg("").arg("");
    invocation.invoke(new).expect("a reply")
}
