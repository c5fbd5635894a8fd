//! `follow` on a real database.

use std::process::Stdio;
use std::time::Duration;

use bellwether::store::{Store, Tags};
use bellwether_redis::RedisStore;
use bellwether_sql::Migrations;
use bellwether_testkit::processes::freeze;
use bellwether_testkit::servers::{MariaDbServer, PostgresServer, RedisServer};
use bellwether_testkit::wait::PATIENCE;
use sqlx::{MySql, Postgres};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{sleep, timeout};

use crate::place::{Place, bellwether, fill, item, json};

#[tokio::test]
async fn follow_applies_what_a_database_has_recorded_in_all_regions_until_it_is_told_to_end() {
    let (postgres, abroad, place) =
        (PostgresServer::start(), RedisServer::start(), Place::single());
    postgres.command(Migrations::<Postgres>::SQL);
    let (abroad_url, url) = (abroad.url(), postgres.url());
    let args = ["follow", &url, "--cache", "item", "--also", &abroad_url, "--every", "0.1"];
    let mut follow = place.command(&args).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("its output")).lines();
    lines.next_line().await.expect("a line");
    let stores =
        [place.store().await, RedisStore::connect(&abroad_url, "shop").await.expect("a store")];
    for store in &stores {
        fill(store, item(42), &[]).await;
    }
    postgres.command("SELECT bellwether_invalidate('item', 42)");
    loop {
        let line = json(&lines.next_line().await.expect("a line").expect("it goes on"));
        if line["applied"] == 1 {
            break;
        }
    }
    for store in &stores {
        assert!(store.lookup(item(42), Tags::none()).await.expect("an answer").is_none());
    }
    let pid = follow.id().expect("it runs").to_string();
    std::process::Command::new("kill").arg(&pid).status().expect("it is there");
    assert!(follow.wait().await.expect("it ends").success());
}

#[tokio::test]
async fn follow_takes_the_address_of_a_mariadb_too() {
    let (mariadb, place) = (MariaDbServer::start(), Place::single());
    mariadb.command(&format!("USE test; {}", Migrations::<MySql>::SQL));
    mariadb.command("CALL test.bellwether_invalidate('item', JSON_ARRAY(42))");
    let args = ["follow", &mariadb.url(), "--cache", "item", "--every", "0.1"];
    let mut follow = place.command(&args).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("its output")).lines();
    while let Some(line) = lines.next_line().await.expect("a line")
        && json(&line)["applied"] != 1
    {}
    follow.kill().await.expect("it runs");
    let applied = "SELECT COUNT(*) FROM test.bellwether_changes WHERE applied_at IS NOT NULL";
    assert_eq!(mariadb.command(applied), "1");
}

#[tokio::test]
async fn follow_without_the_table_says_what_is_missing() {
    let (postgres, place) = (PostgresServer::start(), Place::single());
    let args = ["follow", &postgres.url(), "--cache", "item"];
    let output = place.command(&args).output().await.expect("it runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("bellwether_caches"), "{message}");
    let help = bellwether().args(["follow", "--help"]).output().await.expect("it runs");
    assert!(String::from_utf8_lossy(&help.stdout).contains("--also"));
}

/// To its database, it is like one whose machine has lost its power.
#[tokio::test]
async fn the_rows_of_a_frozen_follower_are_applied_by_others() {
    let (postgres, redis) = (PostgresServer::start(), RedisServer::start());
    postgres.command(Migrations::<Postgres>::SQL);
    let follow = || {
        let mut command = bellwether();
        let (database, url) = (postgres.url(), redis.url());
        command.args(["follow", &database, "--cache", "item", "--timeout", "60"]);
        command.args(["--url", &url, "--namespace", "shop"]).stdout(Stdio::null());
        command.spawn().expect("it runs")
    };
    let pending = |lock| {
        let rows = format!("SELECT FROM bellwether_changes WHERE applied_at IS NULL {lock}");
        postgres.command(&format!("SELECT count(*) FROM ({rows}) AS rows")) != "0"
    };
    let frozen = follow();
    postgres.command("SELECT bellwether_invalidate('item', 1)");
    while pending("") {}
    redis.stop();
    postgres.command("SELECT bellwether_invalidate('item', 42)");
    while pending("FOR UPDATE SKIP LOCKED") {}
    freeze(frozen.id().expect("it runs"));
    redis.resume();
    let _other = follow();
    let applied = async {
        while pending("") {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, applied).await.expect("another follower applies it");
}

#[tokio::test]
async fn follow_ends_when_it_is_told_to_without_its_database() {
    let (mut postgres, place) = (PostgresServer::start(), Place::single());
    postgres.command(Migrations::<Postgres>::SQL);
    let args = ["follow", &postgres.url(), "--cache", "item", "--every", "0.1"];
    let mut follow = place.command(&args).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("its output")).lines();
    lines.next_line().await.expect("a line");
    postgres.kill();
    // It looks once a second, and then waits for a connection, for half a minute.
    for _ in 0..30 {
        lines.next_line().await.expect("a line");
    }
    let pid = follow.id().expect("it runs").to_string();
    std::process::Command::new("kill").arg(&pid).status().expect("it is there");
    let ended = timeout(Duration::from_secs(15), follow.wait()).await.expect("it ends");
    assert!(ended.expect("a status").success());
}
