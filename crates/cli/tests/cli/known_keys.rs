//! How a digest leads to a key, if the operator knows which keys there are.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::place::{Place, fill, item, json, succeeded};

#[tokio::test]
async fn inspect_names_the_key_of_a_digest() {
    let place = Place::single();
    fill(&place.store().await, item(4711), &[]).await;
    let logged = item(4711).to_string();
    assert!(place.run(&["inspect", &logged]).await["name"].is_null());
    let mut command = place.command(&["inspect", &logged, "--keys", "-"]);
    let mut inspect = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it");
    let mut keys = inspect.stdin.take().expect("its input");
    keys.write_all(b"user 7\nitem 1..5000\n").await.expect("it reads");
    drop(keys);
    let shown = json(&succeeded(inspect.wait_with_output().await.expect("it ends")));
    assert_eq!((&shown["name"], &shown["entry"]), (&"item 4711".into(), &"fresh".into()));
}

#[tokio::test]
async fn watch_names_the_busiest_key() {
    let place = Place::single();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("busiest-keys");
    fs::write(&file, "item 1..100").expect("a file");
    let file = file.display().to_string();
    let mut watch = place.command(&["watch", "--every", "0.2", "--keys", &file]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    lines.next_line().await.expect("a line");
    fill(&place.store().await, item(42), &[]).await;
    loop {
        let line = json(&lines.next_line().await.expect("a line").expect("it goes on"));
        if line["busiest"] == item(42).digest().to_string() {
            assert_eq!(line["busiest_key"], "item 42");
            break;
        }
        assert_eq!(line["busiest_key"], "", "{line}");
    }
}
