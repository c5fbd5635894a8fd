//! Typing errors, values, and servers that are hostile.

use std::fs::OpenOptions;
use std::process::Output;
use std::time::{Duration, Instant};

use bellwether::Key;
use bellwether_sql::Migrations;
use bellwether_testkit::servers::{PostgresServer, RedisServer};
use sqlx::Postgres;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::place::{Place, bellwether, fill, item, json, shelf, succeeded};

async fn ended(place: &Place, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, .. } = place.command(args).output().await.expect("it runs");
    (status.code(), String::from_utf8(stdout).expect("a text"))
}

#[tokio::test]
async fn a_change_of_what_no_server_knows_has_a_hint_and_an_exit_code() {
    let place = Place::single();
    let store = place.store().await;
    fill(&store, item(1), &[shelf(1)]).await;
    for args in [&["invalidate", "itme", "1"][..], &["expire", "--tag", "shelf", "bonn", "1"]] {
        let (code, said) = ended(&place, args).await;
        assert_eq!(code, Some(3), "{said}");
        assert!(json(&said)["hint"].as_str().is_some_and(|hint| hint.contains("namespace")));
    }
    for args in [&["expire", "--tag", "shelf", "berlin", "1"][..], &["invalidate", "item", "1"]] {
        let (code, said) = ended(&place, args).await;
        assert_eq!((code, &json(&said)["hint"]), (Some(0), &serde_json::Value::Null), "{said}");
    }
    // It was invalidated before, so it is known.
    assert_eq!(ended(&place, &["invalidate", "item", "1"]).await.0, Some(0));
}

#[tokio::test]
async fn the_hint_of_a_missing_key_names_the_mistake_that_it_finds_in_the_store() {
    let place = Place::single();
    let store = place.store().await;
    for key in [Key::of("item@2").with(1), Key::of("user").with("7"), Key::of("shelf").with(1)] {
        fill(&store, key, &[]).await;
    }
    for (typed, found, mistake) in [
        (["shelves", "1"], "other versions", "name"),
        (["shelfs", "1"], "but of `shelf 1`", "name"),
        (["item", "1"], "but of `item@2 1`", "version"),
        (["items", "1"], "but of `item@2 1`", "name"),
        (["user", "7"], "but of `user text:7`", "types"),
    ] {
        let shown = place.run(&["inspect", typed[0], typed[1]]).await;
        let hint = shown["hint"].as_str().expect("a hint");
        assert!(hint.contains(found) && hint.contains(mistake), "{typed:?}: {hint}");
    }
    let elsewhere = ["inspect", "item@2", "1", "--namespace", "shpo", "--url", &place.url];
    let said = succeeded(bellwether().args(elsewhere).output().await.expect("it runs"));
    assert!(said.contains("in the namespace `shpo`, but in `shop`"), "{said}");
    // Found, or without a mistake that could be found.
    assert!(place.run(&["inspect", "item@2", "1"]).await["hint"].is_null());
}

#[tokio::test]
async fn the_hint_knows_the_caches_that_follow_a_database() {
    let (place, postgres) = (Place::single(), PostgresServer::start());
    postgres.command(Migrations::<Postgres>::SQL);
    postgres.command("INSERT INTO bellwether_caches (name, kind) VALUES ('price', 'price@3')");
    fill(&place.store().await, Key::of("price@3").with(1), &[]).await;
    let shown = place.run(&["inspect", "cost", "1", "--database", &postgres.url()]).await;
    assert!(shown["hint"].as_str().is_some_and(|hint| hint.contains("`price@3 1`")), "{shown}");
}

#[tokio::test]
async fn a_user_that_may_not_scan_gets_a_hint_too() {
    let server = RedisServer::start();
    let url = server.url_of_user(&["~bw:*", "&bw:*", "+@all", "-scan"]);
    let args = ["inspect", "item", "1", "--namespace", "shop", "--url", &url];
    let said = succeeded(bellwether().args(args).output().await.expect("it runs"));
    assert!(said.contains("other versions"), "{said}");
}

#[tokio::test]
async fn a_value_is_shown_if_that_is_asked_for() {
    let place = Place::single();
    fill(&place.store().await, item(1), &[]).await;
    assert!(place.run(&["inspect", "item", "1"]).await.get("value").is_none());
    assert_eq!(place.run(&["inspect", "item", "1", "--value"]).await["value"], "bread");
}

#[tokio::test]
async fn a_time_longer_than_any_lifetime_is_refused() {
    let place = Place::single();
    let args = ["expire", "--tag", "shelf", "--over", "1e18"];
    let Output { status, stderr, .. } = place.command(&args).output().await.expect("it runs");
    let said = String::from_utf8(stderr).expect("a text");
    assert!(status.code() == Some(2) && said.contains("366 days"), "{said}");
}

/// All of an entry becomes stale at once.
#[tokio::test]
async fn a_time_for_one_entry_is_refused() {
    let place = Place::single();
    let args = ["expire", "item", "1", "--over", "60"];
    let Output { status, stderr, .. } = place.command(&args).output().await.expect("it runs");
    let said = String::from_utf8(stderr).expect("a text");
    assert!(status.code() == Some(2) && said.contains("--over"), "{said}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_said_at_once() {
    let place = Place::single();
    for database in
        ["postgres://cache:secret@127.0.0.1:1/shop", "mysql://cache:secret@127.0.0.1:1/shop"]
    {
        let began = Instant::now();
        let shown = place.run(&["inspect", "item", "1", "--database", database]).await;
        let said = shown["changes"].as_str().expect("an error");
        assert!(said.contains("refused") && !said.contains("secret"), "{said}");
        let follow = ["follow", database, "--cache", "item"];
        let Output { status, stderr, .. } = place.command(&follow).output().await.expect("it runs");
        let said = String::from_utf8(stderr).expect("a text");
        assert_eq!(status.code(), Some(1));
        assert!(said.contains("refused") && !said.contains("secret"), "{said}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_command_that_can_print_nothing_ends_with_its_exit_code() {
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("a device");
    for command in [&["inspect", "item", "1"][..], &["inspect", "item#0f3a99c1"]] {
        let mut inspect = Place::single().command(command);
        inspect.stdout(full()).stderr(full());
        assert_eq!(inspect.status().await.expect("it runs").code(), Some(1), "{command:?}");
    }
}

/// A server that answers all by what a terminal obeys. Returns its address.
async fn hostile() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut read = [0; 4096];
                while client.read(&mut read).await.is_ok_and(|length| length > 0) {
                    let evil = "-ERR \x1b]0;evil\x07 \u{9b}31m \u{202e}\r\n".repeat(3);
                    if client.write_all(evil.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_terminal_obeys_nothing_that_a_server_says() {
    let url = hostile().await;
    for command in [&["doctor"][..], &["doctor", "--json"], &["inspect", "item", "1"]] {
        let args = ["--namespace", "shop", "--url", &url];
        let output = bellwether().args(command).args(args).output().await.expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).expect("a text");
        assert!(said.contains("evil"), "{said:?}");
        let is_obeyed =
            |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
        assert!(!said.contains(is_obeyed), "{said:?}");
        if command.contains(&"--json") {
            said.lines().for_each(|line| drop(json(line)));
        }
    }
}
