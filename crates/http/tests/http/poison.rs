//! Bytes in the store that another program wrote.

use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Draft, Store, Value};
use bellwether::{Key, Lifetimes};
use bellwether_redis::RedisStore;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::Reply;
use bytes::Bytes;

use crate::origin::{Origin, ask, cached, field, get, is_hit, page, plain, redis, text};

/// The key of `http://shop/` and a path.
fn key(path: &str) -> Key {
    Key::of("http").with(Some("http")).with(Some("shop")).with(path).with(None::<&str>)
}

/// The encoding of responses.
const CODEC: u8 = 10;

async fn put(store: &RedisStore, bytes: Vec<u8>, codec: u8) {
    let lead = store.acquire(Claim::new(key("/item")), MINUTE, Accept::Nothing).await.unwrap();
    let Acquire::Lead { lease, .. } = lead else { panic!("{lead:?}") };
    let draft = Draft::new(Value::new(Bytes::from(bytes)), codec, Lifetimes::fresh_for(MINUTE));
    store.commit(lease, draft).await.unwrap();
}

async fn kept(store: &RedisStore) -> Vec<u8> {
    let entry = store.find(key("/item")).await.unwrap().expect("it is kept");
    entry.value().encoded().to_vec()
}

fn origin() -> Origin {
    Origin::new(async |_, nth| {
        let fields = [("cache-control", "max-age=60"), ("x-mark", "mmmm")];
        Ok(page(&fields, format!("answer {nth}")))
    })
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let at = bytes.windows(old.len()).position(|window| window == old).expect("it is there");
    [&bytes[..at], new, &bytes[at + old.len()..]].concat()
}

/// Ten thousand fields, as the encoding writes them.
fn many_fields() -> Vec<u8> {
    let mut bytes = vec![1, 0xC8, 0x01, 0x90, 0x4E];
    (0..10_000).for_each(|_| bytes.extend_from_slice(b"\x01a\x01b"));
    bytes.extend_from_slice(&[0, 0, 0, 0]);
    bytes
}

#[tokio::test]
async fn poisoned_bytes_never_reach_a_caller() {
    let (_server, store) = redis().await;
    let origin = origin();
    let cache = cached(&plain(store.clone()).build().unwrap(), &origin);
    get(&cache, &[]).await;
    let good = kept(&store).await;
    let poisons = [
        ("a line break", replaced(&good, b"mmmm", b"m\r\nm"), CODEC),
        ("a zero", replaced(&good, b"mmmm", b"m\0mm"), CODEC),
        ("a name that is none", replaced(&good, b"x-mark", b"x mark"), CODEC),
        ("ten thousand fields", many_fields(), CODEC),
        ("a cut", good[..good.len() / 2].to_vec(), CODEC),
        ("nothing", Vec::new(), CODEC),
        ("another encoding", good.clone(), CODEC + 1),
    ];
    put(&store, good.clone(), CODEC).await;
    assert!(is_hit(&get(&cache, &[]).await), "what was not touched is given out");
    for (what, bytes, codec) in poisons {
        put(&store, bytes, codec).await;
        let asked = origin.asked();
        let answer = get(&cache, &[]).await;
        assert!(!is_hit(&answer), "{what}: {answer:?}");
        assert_eq!(field(&answer, "x-mark"), "mmmm", "{what}");
        assert_eq!(text(answer).await, format!("answer {asked}"), "{what}");
    }
}

#[tokio::test]
async fn what_was_kept_for_one_target_is_not_given_for_another() {
    let (server, store) = redis().await;
    let origin = origin();
    let cache = cached(&plain(store).build().unwrap(), &origin);
    get(&cache, &[]).await;
    let hex = |path| key(path).digest().to_string();
    let names = server.command(&["KEYS", &format!("*{}*", hex("/item"))]);
    let Reply::Array(names) = names else { panic!("{names:?}") };
    let name = names.into_iter().map(Reply::text).find(|name| name.ends_with('}')).unwrap();
    server.command(&["COPY", &name, &name.replace(&hex("/item"), &hex("/other"))]);
    let answer = ask(&cache, "GET", "http://shop/other", &[]).await;
    assert!(!is_hit(&answer));
    assert_eq!(text(answer).await, "answer 1");
}

const MINUTE: Duration = Duration::from_secs(60);
