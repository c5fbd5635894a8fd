//! The servers and the network that the other tests stand on.

mod faults;
mod workers;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::processes::lives;
use bellwether_testkit::servers::{RedisServer, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long nothing must happen before we call it silence.
const SILENCE: Duration = Duration::from_millis(100);

#[test]
fn a_clock_that_was_turned_shows_its_new_time_to_the_next_command() {
    let server = RedisServer::start_with_clock(0, &[]);
    let mut connection = server.connect();
    let mut seconds = || -> i64 {
        let Ok(Reply::Array(time)) = connection.command(&["TIME"]) else { panic!("no time") };
        let [Reply::Text(seconds), _] = &time[..] else { panic!("not a time: {time:?}") };
        seconds.parse().expect("a number")
    };
    for turned_by in [3600, -3600].repeat(10) {
        let before = seconds();
        server.turn_clock(turned_by.max(0));
        let shown = seconds() - before;
        assert!((turned_by - 60..turned_by + 60).contains(&shown), "{shown} s for {turned_by}");
    }
}

#[test]
fn nothing_is_left_of_a_dropped_server_even_if_it_was_stopped() {
    let server = RedisServer::start();
    let dir = server.dir().to_owned();
    let pid = server.pid();
    assert!(dir.exists() && lives(pid));
    server.stop();
    drop(server);
    assert!(!dir.exists() && !lives(pid));
}

/// Holds a server until its input ends, for [`a_server_dies_with_its_test_process`] to kill.
#[test]
#[ignore = "only of use to another test, which runs it in a process of its own"]
fn holds_a_server() {
    let server = RedisServer::start();
    println!("\nport {}", server.port());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_server_dies_with_its_test_process() {
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_server", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let mut ports = lines.filter_map(|line| line.unwrap().strip_prefix("port ")?.parse().ok());
    let mut client = std::net::TcpStream::connect(local(ports.next().unwrap())).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    // The end of the connection is the end of the server.
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let end = client.read(&mut [0]);
    assert!(is_closed(&end), "{end:?}");
}

#[tokio::test]
async fn a_cut_resets_the_connections_that_exist_and_spares_new_ones() {
    let (_server, proxy) = proxied().await;
    let mut before = connect(proxy.address()).await.unwrap();
    ping(&mut before).await.unwrap();
    proxy.cut();
    let reset = before.read(&mut [0]).await.unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    let mut after = connect(proxy.address()).await.unwrap();
    assert_eq!(ping(&mut after).await.unwrap(), *b"+PONG\r\n");
}

#[tokio::test]
async fn a_blackhole_takes_everything_and_delivers_it_once_it_passes() {
    let (_server, proxy) = proxied().await;
    let mut old = connect(proxy.address()).await.unwrap();
    ping(&mut old).await.unwrap();
    proxy.blackhole();
    let mut new = connect(proxy.address()).await.unwrap();
    for client in [&mut old, &mut new] {
        client.write_all(b"PING\r\n").await.unwrap();
        assert!(is_silent(client).await);
    }
    proxy.pass();
    assert_eq!(pong(&mut old).await.unwrap(), *b"+PONG\r\n");
    assert_eq!(pong(&mut new).await.unwrap(), *b"+PONG\r\n");
}

async fn proxied() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(local(server.port())).await;
    (server, proxy)
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect(address).await
}

async fn ping(client: &mut TcpStream) -> io::Result<[u8; 7]> {
    client.write_all(b"PING\r\n").await?;
    pong(client).await
}

async fn pong(client: &mut TcpStream) -> io::Result<[u8; 7]> {
    let mut answer = [0; 7];
    client.read_exact(&mut answer).await?;
    Ok(answer)
}

async fn is_silent(client: &TcpStream) -> bool {
    timeout(SILENCE, client.peek(&mut [0])).await.is_err()
}

fn is_closed(read: &io::Result<usize>) -> bool {
    match read {
        Ok(length) => *length == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}
