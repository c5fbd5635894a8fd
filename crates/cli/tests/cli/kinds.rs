//! Each command on a single server, on a Cluster, behind Sentinel and by TLS.

use std::process::Stdio;
use std::time::Duration;

use bellwether::FailureCause;
use bellwether::store::{
    Accept, Acquire, Claim, End, Failure, Peek, Renew, Store, Tags, Withdrawal, WithdrawalTarget,
};
use bellwether_testkit::servers::chosen_server_lacks_tls;
use bellwether_testkit::wait::until;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::place::{MINUTE, Place, TRACE, fill, item, json, lead, shelf, succeeded};

/// More than a part of a second, in ms, and less than a whole minute.
fn is_about_a_minute(value: &serde_json::Value) -> bool {
    (50_000..=60_000).contains(&value.as_u64().expect("a time"))
}

async fn shows_an_entry(place: &Place) {
    let store = place.store().await;
    let unknown = place.run(&["inspect", "item", "1"]).await;
    assert_eq!((&unknown["entry"], &unknown["lease"]), (&"none".into(), &"free".into()));
    assert!(unknown["hint"].is_string(), "{unknown}");
    fill(&store, item(1), &[shelf(1), shelf(2)]).await;
    let shown = place.run(&["inspect", "item", "1"]).await;
    assert_eq!((&shown["entry"], &shown["lease"]), (&"fresh".into(), &"free".into()), "{shown}");
    assert_eq!((&shown["cooldown"], &shown["bytes"]), (&"none".into(), &5.into()));
    assert_eq!(shown["key"], item(1).digest().to_string());
    assert!(shown["stored_ago_ms"].as_u64().expect("a time") < 30_000, "{shown}");
    assert!(is_about_a_minute(&shown["fresh_for_ms"]), "{shown}");
    assert!(is_about_a_minute(&shown["then_stale_for_ms"]), "{shown}");
    assert_eq!(shown["tags"].as_array().map(Vec::len), Some(2));
    assert!(shown["tags"].to_string().contains(&format!("{} current", shelf(1).digest())));
    // As a log shows it.
    let logged = item(1).to_string();
    assert_eq!(place.run(&["inspect", &logged]).await["key"], shown["key"]);
}

async fn shows_a_lease_and_its_waiters(place: &Place) {
    let [leader, waiter] = [place.store().await, place.store().await];
    let lease = lead(&leader, item(2), &[]).await;
    let claim = Claim::new(item(2));
    let acquired = waiter.acquire(claim, MINUTE, Accept::Fresh).await.expect("an answer");
    assert!(matches!(acquired, Acquire::Busy { .. }), "{acquired:?}");
    let shown = place.run(&["inspect", "item", "2"]).await;
    assert_eq!((&shown["lease"], &shown["lease_fence"]), (&"held".into(), &lease.fence.into()));
    assert_eq!((&shown["waiting_processes"], &shown["trace"]), (&1.into(), &TRACE.into()));
    assert!((1..=3_000).contains(&shown["lease_lapses_in_ms"].as_u64().expect("a time")));
    let token = lease.claim.token();
    let token = token.as_bytes()[..4].iter().map(|byte| format!("{byte:02x}"));
    assert_eq!(shown["lease_token"], token.collect::<String>());
    let failure = Failure::new(FailureCause::TimedOut, 3, MINUTE).with_message("no route");
    leader.settle(End::Fail(lease, failure)).await.expect("an answer");
    let shown = place.run(&["inspect", "item", "2"]).await;
    assert_eq!((&shown["lease"], &shown["cooldown"]), (&"free".into(), &"on".into()), "{shown}");
    assert_eq!((&shown["failures_in_a_row"], &shown["failure"]), (&3.into(), &"TimedOut".into()));
    assert_eq!(shown["failure_message"], "no route");
    assert!(is_about_a_minute(&shown["cooldown_left_ms"]), "{shown}");
}

async fn invalidates_for_running_processes(place: &Place) {
    let near = place.options().near(1 << 20).connect().await.expect("a store");
    fill(&near, item(3), &[shelf(3)]).await;
    assert!(near.lookup(item(3), Tags::none()).await.expect("an answer").is_some());
    assert!(matches!(near.peek(&item(3)), Peek::Found(_)));
    let late = lead(&near, item(4), &[]).await;
    let done = place.run(&["invalidate", "item", "3"]).await;
    assert_eq!((&done["done"], &done["was_stored"]), (&"invalidated".into(), &true.into()));
    until("the copy ends", || !matches!(near.peek(&item(3)), Peek::Found(_))).await;
    assert!(near.lookup(item(3), Tags::none()).await.expect("an answer").is_none());
    let shown = place.run(&["inspect", "item", "3"]).await;
    assert!(shown["invalidated_ago_ms"].as_u64().expect("a time") < 30_000, "{shown}");
    // A load that is under way has lost its lease.
    let digest = item(4).digest().to_string();
    assert_eq!(place.run(&["invalidate", "--digest", &digest]).await["was_stored"], false);
    let held = near.renew(&late, MINUTE).await.expect("an answer");
    assert_eq!(held, Renew::Lost);
}

async fn changes_tags(place: &Place) {
    let store = place.store().await;
    fill(&store, item(5), &[shelf(5)]).await;
    let tag = ["--tag", "shelf", "berlin", "5"];
    let expired = place.run(&[&["expire"], &tag[..]].concat()).await;
    assert_eq!(expired["tag"], shelf(5).digest().to_string());
    let shown = place.run(&["inspect", "item", "5"]).await;
    assert_eq!(shown["entry"], "stale", "{shown}");
    assert!(shown["tags"].to_string().contains("expired"), "{shown}");
    assert!(
        !store
            .lookup(item(5), Tags::none())
            .await
            .expect("an answer")
            .expect("an entry")
            .is_fresh()
    );
    place.run(&[&["invalidate"], &tag[..]].concat()).await;
    let shown = place.run(&["inspect", "item", "5"]).await;
    assert_eq!(shown["entry"], "outdated by a tag", "{shown}");
    assert!(store.lookup(item(5), Tags::none()).await.expect("an answer").is_none());
    // A key with a stale window is kept for it.
    fill(&store, item(6), &[]).await;
    assert_eq!(place.run(&["expire", "item", "6"]).await["was_stored"], true);
    let shown = place.run(&["inspect", "item", "6"]).await;
    assert_eq!((&shown["entry"], &shown["expired_early"]), (&"stale".into(), &true.into()));
}

async fn watches(place: &Place) {
    let store = place.store().await;
    let mut watch = place.command(&["watch", "--every", "0.2"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    // From its first line on, it sees all.
    lines.next_line().await.expect("a line");
    for sku in 10..15 {
        fill(&store, item(sku), &[]).await;
    }
    store
        .withdraw(WithdrawalTarget::Key(item(10)), Withdrawal::Invalidate)
        .await
        .expect("an answer");
    store
        .withdraw(WithdrawalTarget::Tag(shelf(10)), Withdrawal::Invalidate)
        .await
        .expect("an answer");
    let lease = lead(&store, item(16), &[]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let failure = Failure::new(FailureCause::Error, 2, MINUTE);
    store.settle(End::Fail(lease, failure)).await.expect("an answer");
    let counted = ["leases", "stored", "failed", "invalidated", "tags", "gaps"];
    let mut seen = [0; 6];
    while seen != [6, 5, 1, 1, 1, 0] {
        let line = lines.next_line().await.expect("a line").expect("it goes on");
        let line = json(&line);
        for (sum, name) in seen.iter_mut().zip(counted) {
            *sum += line[name].as_u64().expect("a count");
        }
        assert!(line["lookups"].is_number(), "{line}");
        assert!(seen.iter().zip([6, 5, 1, 1, 1, 0]).all(|(seen, most)| *seen <= most), "{seen:?}");
    }
}

async fn finds_nothing_to_mend(place: &Place) {
    let found = succeeded(place.command(&["doctor"]).output().await.expect("it runs"));
    let findings: Vec<_> = found.lines().map(json).collect();
    assert!(findings.iter().all(|finding| finding["verdict"] != "mend"), "{found}");
    for part in ["connect", "messages", "tracking", "latency", "clock", "version", "eviction"] {
        assert!(findings.iter().any(|finding| finding["about"] == part), "{part}: {found}");
    }
}

async fn tour(place: Place) {
    shows_an_entry(&place).await;
    shows_a_lease_and_its_waiters(&place).await;
    invalidates_for_running_processes(&place).await;
    changes_tags(&place).await;
    watches(&place).await;
    finds_nothing_to_mend(&place).await;
}

#[tokio::test]
async fn every_command_works_on_a_single_server() {
    tour(Place::single()).await;
}

#[tokio::test]
async fn every_command_works_on_a_cluster() {
    tour(Place::cluster()).await;
}

#[tokio::test]
async fn every_command_works_behind_sentinels() {
    tour(Place::sentinel().await).await;
}

#[tokio::test]
async fn every_command_works_by_tls() {
    if !chosen_server_lacks_tls() {
        tour(Place::tls()).await;
    }
}
