//! How keys and servers are named on the command line, and what people read.

use bellwether::{Cache, Key};
use bellwether_testkit::servers::RedisServer;

use crate::place::{MINUTE, Place, bellwether, fill, fill_by, item, succeeded};

async fn said(args: &[&str]) -> (Option<i32>, String) {
    let output = bellwether().env_remove("BELLWETHER_REDIS_URL").args(args).output().await;
    let output = output.expect("it runs");
    (output.status.code(), String::from_utf8(output.stderr).expect("a text"))
}

#[tokio::test]
async fn a_number_and_a_text_are_two_keys() {
    let place = Place::single();
    let store = place.store().await;
    fill(&store, Key::of("item").with("42").with("a/b"), &[]).await;
    assert_eq!(place.run(&["inspect", "item", "42", "a/b"]).await["entry"], "none");
    assert_eq!(place.run(&["inspect", "item", "text:42", "a/b"]).await["entry"], "fresh");
    assert_eq!(place.run(&["invalidate", "item", "text:42", "a/b"]).await["was_stored"], true);
    fill(&store, Key::of("item").with(-42), &[]).await;
    assert_eq!(place.run(&["inspect", "item", "-42"]).await["entry"], "fresh");
}

#[tokio::test]
async fn clearable_caches_are_cleared_by_their_tag() {
    let place = Place::single();
    let items: Cache<u64, u64> = Cache::builder("item", place.store().await)
        .ttl(MINUTE)
        .clearable()
        .build()
        .expect("options");
    let load = async || Ok::<_, std::io::Error>(7);
    items.get_or_load(1, load).await.expect("an answer");
    // It is the key that a cache makes of its name and the argument.
    assert_eq!(place.run(&["inspect", "item", "1"]).await["entry"], "fresh");
    place.run(&["invalidate", "--tag", "bellwether.everything"]).await;
    assert_eq!(items.get(1).await.expect("an answer"), None);
}

#[tokio::test]
async fn digits_of_which_nothing_is_stored_are_an_error() {
    let place = Place::single();
    let output = place.command(&["invalidate", "item#0f3a99c1"]).output().await.expect("it runs");
    let said = String::from_utf8(output.stderr).expect("a text");
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("bw:shop:{0f3a99c1*"), "{said}");
}

#[tokio::test]
async fn an_entry_shows_its_codec_or_that_this_version_cannot_read_it() {
    let place = Place::single();
    let store = place.store().await;
    let shown = [(1, "fresh", "json"), (77, "fresh", "of the program"), (8, "fresh", "http")];
    for (codec, entry, name) in shown {
        fill_by(codec, &store, item(codec.into()), &[]).await;
        let shown = place.run(&["inspect", "item", &codec.to_string()]).await;
        assert_eq!((&shown["entry"], &shown["codec"]), (&entry.into(), &name.into()), "{shown}");
    }
    fill_by(2, &store, item(2), &[]).await;
    let shown = place.run(&["inspect", "item", "2"]).await;
    assert_eq!(shown["entry"], "unreadable", "{shown}");
    assert!(shown["reason"].as_str().expect("a text").contains("codec 2"), "{shown}");
}

#[tokio::test]
async fn people_read_lines_and_programs_json() {
    let place = Place::single();
    fill(&place.store().await, item(1), &[]).await;
    let mut command = bellwether();
    command.args(["inspect", "item", "1", "--namespace", "shop", "--url", &place.url]);
    let shown = succeeded(command.output().await.expect("it runs"));
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).expect("a line");
    assert!(line("key").ends_with(&item(1).digest().to_string()), "{shown}");
    assert!(line("entry").ends_with("fresh") && line("ttl").ends_with("60.0s"), "{shown}");
    let mut command = bellwether();
    command.args(["watch", "--every", "0.1", "--count", "2", "--namespace", "shop"]);
    let shown = succeeded(command.args(["--url", &place.url]).output().await.expect("it runs"));
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(shown.contains("lookups"), "{shown}");
}

#[tokio::test]
async fn a_command_line_that_is_wrong_says_what_is_missing() {
    let (code, text) = said(&["inspect", "item", "1"]).await;
    assert!(code == Some(1) && text.contains("BELLWETHER_REDIS_URL"), "{text}");
    let url = RedisServer::start().url();
    let (code, text) = said(&["inspect", "item", "1", "--url", &url]).await;
    assert!(code == Some(1) && text.contains("BELLWETHER_NAMESPACE"), "{text}");
    let server = ["--url", &url, "--namespace", "shop"];
    let (code, text) = said(&[&["inspect", "item", "int:x"], &server[..]].concat()).await;
    assert!(code == Some(1) && text.contains("`int:x`"), "{text}");
    let (code, text) = said(&[&["inspect", "--digest", "0f3a"], &server[..]].concat()).await;
    assert!(code == Some(1) && text.contains("8 to 40"), "{text}");
    assert_eq!(said(&[&["invalidate"], &server[..]].concat()).await.0, Some(2));
    let (code, text) = said(&[&["inspect", "--tag", "shelf"], &server[..]].concat()).await;
    assert!(code == Some(1) && text.contains("a tag"), "{text}");
}
