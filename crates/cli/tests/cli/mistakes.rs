//! Typing errors, values, and servers that are hostile.

use std::process::Output;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::place::{Place, bellwether, fill, item, json, shelf};

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
