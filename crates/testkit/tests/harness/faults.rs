//! Each fault of the proxy, as a raw connection meets it.

use std::io::ErrorKind;
use std::time::Duration;

use bellwether_testkit::faults::{FaultProxy, Replacement};
use bellwether_testkit::servers::{RedisServer, Reply, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{connect, is_silent, ping, pong, proxied};

const PONG: [u8; 7] = *b"+PONG\r\n";

const LOADING: &str = "-LOADING Redis is loading the dataset in memory\r\n";

async fn with_client() -> (RedisServer, FaultProxy, TcpStream) {
    let (server, proxy) = proxied().await;
    let mut client = connect(proxy.address()).await.unwrap();
    assert_eq!(ping(&mut client).await.unwrap(), PONG);
    (server, proxy, client)
}

/// How long anything asked for may take.
const PATIENCE: Duration = Duration::from_secs(10);

async fn send(client: &mut TcpStream, commands: &[&[&str]]) {
    let commands: Vec<_> = commands.iter().map(|words| request(words)).collect();
    client.write_all(&commands.concat()).await.unwrap();
}

/// Asserts that exactly these bytes come next.
async fn comes(client: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    let read = timeout(PATIENCE, client.read_exact(&mut bytes)).await;
    assert!(matches!(read, Ok(Ok(_))), "{read:?} instead of {expected:?}");
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

/// What comes, until it ends like this.
async fn until(client: &mut TcpStream, end: &str) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        let read = timeout(PATIENCE, client.read_buf(&mut seen)).await;
        assert!(matches!(read, Ok(Ok(1..))), "{read:?} instead of {end:?}");
    }
    String::from_utf8_lossy(&seen).into_owned()
}

async fn ends_by(client: &mut TcpStream) -> ErrorKind {
    client.read(&mut [0]).await.unwrap_err().kind()
}

#[tokio::test]
async fn each_way_has_its_own_delay() {
    const LONG: Duration = Duration::from_secs(60);
    let (server, proxy, mut client) = with_client().await;
    proxy.delay(Duration::ZERO, LONG);
    send(&mut client, &[&["SET", "came", "yes"]]).await;
    assert!(is_silent(&client).await);
    assert_eq!(server.command(&["GET", "came"]), Reply::Text("yes".into()));
    let mut client = connect(proxy.address()).await.unwrap();
    proxy.delay(LONG, Duration::ZERO);
    send(&mut client, &[&["SET", "came", "no"]]).await;
    assert!(is_silent(&client).await);
    assert_eq!(server.command(&["GET", "came"]), Reply::Text("yes".into()));
}

#[tokio::test]
async fn in_silence_the_server_does_what_it_is_asked_and_nothing_comes_back() {
    let (server, proxy, mut old) = with_client().await;
    proxy.silence();
    let mut new = connect(proxy.address()).await.unwrap();
    for client in [&mut old, &mut new] {
        send(client, &[&["INCR", "n"]]).await;
        assert!(is_silent(client).await);
    }
    assert_eq!(server.command(&["GET", "n"]), Reply::Text("2".into()));
    proxy.pass();
    comes(&mut old, ":1\r\n").await;
    comes(&mut new, ":2\r\n").await;
}

#[tokio::test]
async fn a_connection_is_reset_after_so_many_bytes_of_replies_and_the_next_is_not() {
    let (_server, proxy, mut client) = with_client().await;
    proxy.cut_after(10);
    client.write_all(b"PING\r\nPING\r\n").await.unwrap();
    comes(&mut client, "+PONG\r\n+PO").await;
    assert_eq!(ends_by(&mut client).await, ErrorKind::ConnectionReset);
    let mut next = connect(proxy.address()).await.unwrap();
    assert_eq!(ping(&mut next).await.unwrap(), PONG);
}

#[tokio::test]
async fn bits_of_one_byte_of_the_replies_are_flipped_and_of_no_other() {
    let (_server, proxy, mut client) = with_client().await;
    proxy.flip(8, b'P' ^ b'T');
    client.write_all(b"PING\r\nPING\r\nPING\r\n").await.unwrap();
    comes(&mut client, "+PONG\r\n+TONG\r\n+PONG\r\n").await;
}

#[tokio::test]
async fn the_reply_to_a_command_is_replaced_and_no_other() {
    let (server, proxy, mut client) = with_client().await;
    let replaced = proxy.replace(Replacement::of("MGET a", LOADING));
    let commands: [&[&str]; 4] = [&["GET", "b"], &["MGET", "a", "b"], &["MGET", "b"], &["PING"]];
    for _ in 0..2 {
        send(&mut client, &commands).await;
        comes(&mut client, &format!("$-1\r\n{LOADING}*1\r\n$-1\r\n+PONG\r\n")).await;
    }
    assert_eq!(replaced.count(), 2);
    let calls = server.info("commandstats", "cmdstat_mget").expect("it was called");
    assert!(calls.starts_with("calls=4,"), "all are done: {calls}");
}

#[tokio::test]
async fn a_refused_command_is_answered_in_its_turn_and_not_done() {
    let (server, proxy, mut client) = with_client().await;
    let refused = proxy.replace(Replacement::refusal("INCR", LOADING));
    send(&mut client, &[&["PING"], &["INCR", "n"], &["PING"]]).await;
    comes(&mut client, &format!("+PONG\r\n{LOADING}+PONG\r\n")).await;
    assert_eq!(refused.count(), 1);
    assert_eq!(server.command(&["EXISTS", "n"]), Reply::Integer(0));
}

#[tokio::test]
async fn replies_of_every_kind_are_separated() {
    let (_server, proxy, mut client) = with_client().await;
    let replaced = proxy.replace(Replacement::of("ECHO last", "-LAST\r\n"));
    let text = "x".repeat(40_000);
    send(
        &mut client,
        &[
            &["HELLO", "3"],
            &["ECHO", &text],
            &["ECHO", "-\r\n+not a reply\r\n"],
            &["HSET", "hash", "field", "value"],
            &["HGETALL", "hash"],
            &["SMEMBERS", "none"],
            &["GET", "none"],
            &["ZADD", "set", "1.5", "member"],
            &["ZSCORE", "set", "member"],
            &["EVAL", "return {1, {2, {}, 'x'}, false}", "0"],
            &["DEBUG", "PROTOCOL", "attrib"],
            &["DEBUG", "PROTOCOL", "verbatim"],
            &["DEBUG", "PROTOCOL", "bignum"],
            &["DEBUG", "PROTOCOL", "true"],
            &["ECHO", "last"],
            &["PING"],
        ],
    )
    .await;
    let seen = until(&mut client, "+PONG\r\n").await;
    assert!(seen.ends_with("#t\r\n-LAST\r\n+PONG\r\n"), "{seen:?}");
    assert_eq!(replaced.count(), 1);
}

#[tokio::test]
async fn a_push_is_no_reply() {
    let (server, proxy, mut client) = with_client().await;
    send(&mut client, &[&["HELLO", "3"], &["CLIENT", "TRACKING", "ON"], &["GET", "k"]]).await;
    until(&mut client, "+OK\r\n_\r\n").await;
    let replaced = proxy.replace(Replacement::of("BLPOP", "-REPLACED\r\n"));
    send(&mut client, &[&["BLPOP", "queue", "60"]]).await;
    assert!(is_silent(&client).await);
    server.command(&["SET", "k", "changed"]);
    comes(&mut client, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n").await;
    assert_eq!(replaced.count(), 0);
    server.command(&["RPUSH", "queue", "element"]);
    comes(&mut client, "-REPLACED\r\n").await;
    assert_eq!(replaced.count(), 1);
}

#[tokio::test]
async fn pushes_are_lost_and_replies_are_not() {
    let (server, proxy, mut client) = with_client().await;
    proxy.lose_pushes();
    send(&mut client, &[&["HELLO", "3"], &["CLIENT", "TRACKING", "ON"], &["GET", "k"]]).await;
    until(&mut client, "+OK\r\n_\r\n").await;
    server.command(&["SET", "k", "changed"]);
    assert_eq!(ping(&mut client).await.unwrap(), PONG);
    proxy.heal();
    send(&mut client, &[&["GET", "k"]]).await;
    comes(&mut client, "$7\r\nchanged\r\n").await;
    server.command(&["SET", "k", "again"]);
    comes(&mut client, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n").await;
}

#[tokio::test]
async fn messages_of_a_subscription_are_lost_as_pushes_are() {
    let (server, proxy, mut client) = with_client().await;
    send(&mut client, &[&["SUBSCRIBE", "news"]]).await;
    comes(&mut client, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
    proxy.lose_pushes();
    server.command(&["PUBLISH", "news", "lost"]);
    assert!(is_silent(&client).await);
    proxy.heal();
    server.command(&["PUBLISH", "news", "told"]);
    comes(&mut client, "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\ntold\r\n").await;
}

#[tokio::test]
async fn a_healed_proxy_has_no_faults() {
    let (_server, proxy, mut client) = with_client().await;
    proxy.refuse();
    proxy.delay(Duration::ZERO, Duration::from_secs(60));
    proxy.trickle(1);
    proxy.silence();
    proxy.cut_after(3);
    proxy.flip(1, 1);
    proxy.replace(Replacement::of("PING", LOADING));
    proxy.heal();
    assert_eq!(ping(&mut client).await.unwrap(), PONG);
    let mut new = connect(proxy.address()).await.unwrap();
    client.write_all(b"PING\r\n").await.unwrap();
    assert_eq!(pong(&mut client).await.unwrap(), PONG);
    assert_eq!(ping(&mut new).await.unwrap(), PONG);
}
