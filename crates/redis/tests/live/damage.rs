//! Foreign or damaged values in Redis: a miss, never a wrong answer, never an error.

use bellwether::CacheStatus;
use bellwether_test::StoreExt as _;
use bellwether_testkit::servers::RedisServer;
use redis::Commands;

use crate::catalog::{Catalog, key, name};

/// A server with one entry of ours, and a plain connection to spoil it by.
async fn with_entry() -> (RedisServer, Catalog, redis::Connection, Vec<u8>) {
    let server = RedisServer::start();
    let catalog = Catalog::on(&server).await;
    assert_eq!(catalog.ask(1).await, "item 1, load 0");
    let client = redis::Client::open(server.url()).expect("a client");
    let mut plain = client.get_connection().expect("a connection");
    let sealed: Vec<u8> = plain.get(name(1)).expect("the entry");
    assert_eq!(&sealed[..4], b"BWE\x01");
    (server, catalog, plain, sealed)
}

fn plant(plain: &mut redis::Connection, sku: u64, bytes: &[u8]) {
    let _: () = plain.set_ex(name(sku), bytes, 60).expect("planted");
}

#[tokio::test]
async fn a_damaged_entry_is_loaded_again_and_replaced() {
    let (_server, catalog, mut plain, sealed) = with_entry().await;
    let mut flipped = sealed.clone();
    flipped[80] ^= 4;
    let damages: [(&str, &[u8]); 7] = [
        ("a flipped bit in the value", &flipped),
        ("a cut value", &sealed[..sealed.len() - 1]),
        ("a cut header", &sealed[..40]),
        ("a header alone", &sealed[..72]),
        ("one byte", b"B"),
        ("nothing", b""),
        (
            "text",
            b"hello world, this is not an envelope but long enough to hold a whole header.....",
        ),
    ];
    for (load, (what, bytes)) in damages.into_iter().enumerate() {
        plant(&mut plain, 1, bytes);
        let loaded = format!("item 1, load {}", load + 1);
        assert_eq!(catalog.ask(1).await, loaded, "{what}");
        assert_eq!(catalog.ask(1).await, loaded, "{what} was not replaced");
    }
    assert!(catalog.store.stats().unreadable >= 7);
}

#[tokio::test]
async fn every_cut_and_every_flipped_header_bit_is_a_miss() {
    let (_server, catalog, mut plain, sealed) = with_entry().await;
    let cuts = (0..sealed.len()).map(|length| sealed[..length].to_vec());
    let flips = (0..72 * 8).map(|bit| {
        let mut flipped = sealed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    for bytes in cuts.chain(flips) {
        plant(&mut plain, 1, &bytes);
        let found = catalog.store.find(key(1)).await.expect("no error");
        assert!(found.is_none(), "{bytes:?} was read");
    }
}

#[tokio::test]
async fn the_entry_of_another_key_is_not_served() {
    let (_server, catalog, mut plain, sealed) = with_entry().await;
    plant(&mut plain, 2, &sealed);
    assert_eq!(catalog.ask(2).await, "item 2, load 1");
}

#[tokio::test]
async fn an_entry_of_a_newer_version_is_a_miss_and_left_alone() {
    let (_server, catalog, mut plain, mut sealed) = with_entry().await;
    sealed[3] = 2;
    plant(&mut plain, 1, &sealed);
    let (answer, status) = catalog.ask_with_status(1).await;
    assert_eq!(answer, "item 1, load 1");
    assert_eq!(status, CacheStatus::Led { stored: false });
    let left: Vec<u8> = plain.get(name(1)).expect("it is still there");
    assert_eq!(left, sealed);
    let lease: Option<Vec<u8>> = plain.get(format!("{}:lease", name(1))).expect("an answer");
    assert_eq!(lease, None);
}

#[tokio::test]
async fn a_foreign_type_under_the_key_is_a_miss_and_replaced() {
    let (_server, catalog, mut plain, _) = with_entry().await;
    let _: () = plain.del(name(1)).expect("deleted");
    let _: () = plain.lpush(name(1), "not ours").expect("planted");
    let before = catalog.store.stats().unreadable;
    assert_eq!(catalog.ask(1).await, "item 1, load 1");
    assert_eq!(catalog.ask(1).await, "item 1, load 1");
    assert_eq!(catalog.store.stats().unreadable, before + 1, "it is said once");
}

#[tokio::test]
async fn a_foreign_value_in_place_of_a_lease_blocks_no_caller() {
    let (_server, catalog, mut plain, _) = with_entry().await;
    let lease = |sku| format!("{}:lease", name(sku));
    let _: () = plain.lpush(lease(2), "not ours").expect("planted");
    let _: () = plain.set(lease(3), "x".repeat(24)).expect("planted, without an end");
    let _: () = plain.set_ex(lease(4), "not as long as ours", 600).expect("planted");
    for sku in 2..=4 {
        let (_, status) = catalog.ask_with_status(sku).await;
        assert_eq!(status, CacheStatus::Led { stored: true }, "item {sku}");
    }
}

#[tokio::test]
async fn a_foreign_value_in_place_of_a_watermark_is_ignored() {
    let (_server, catalog, mut plain, _) = with_entry().await;
    for (sku, watermark) in [(2, "not a watermark"), (3, "-1"), (4, "nan"), (5, "")] {
        plant(&mut plain, sku, b"");
        let _: () =
            plain.set_ex(format!("{}:watermark", name(sku)), watermark, 60).expect("planted");
        let (_, status) = catalog.ask_with_status(sku).await;
        assert_eq!(status, CacheStatus::Led { stored: true }, "{watermark:?}");
        catalog.store.invalidate(key(sku)).await.expect("invalidated");
    }
}

/// In any place, a fence that is larger than any that was ever given counts as none.
#[tokio::test]
async fn an_entry_with_a_flipped_bit_in_its_fence_is_replaced() {
    let (_server, catalog, mut plain, sealed) = with_entry().await;
    for bit in 28 * 8..36 * 8 {
        let mut flipped = sealed.clone();
        flipped[bit / 8] ^= 0x80 >> (bit % 8);
        plant(&mut plain, 1, &flipped);
        let (first, status) = catalog.ask_with_status(1).await;
        assert_eq!(status, CacheStatus::Led { stored: true }, "bit {bit}");
        assert_eq!(catalog.ask(1).await, first, "bit {bit}");
    }
}

#[tokio::test]
async fn an_entry_of_an_impossible_fence_can_be_invalidated() {
    let (_server, catalog, mut plain, sealed) = with_entry().await;
    let mut flipped = sealed.clone();
    flipped[28] ^= 0x80;
    plant(&mut plain, 1, &flipped);
    catalog.store.invalidate(key(1)).await.expect("invalidated");
    let (_, status) = catalog.ask_with_status(1).await;
    assert_eq!(status, CacheStatus::Led { stored: true });
}
