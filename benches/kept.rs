//! The memory of what an HTTP cache keeps: how much more is resident once clients have asked for
//! twice as many targets as the store has room for, over real connections.
//!
//! Each count of entries is measured in a process of its own. Beside the growth stands what the
//! store itself counts, which `max_bytes` bounds.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::{env, iter};

use axum::http::header::CACHE_CONTROL;
use axum::routing::get;
use axum::{Router, serve};
use bellwether::MemoryStore;
use bellwether_http::HttpCacheLayer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::figures::{Spread, Wanted, line};
use crate::paired::Effort;
use crate::parked::resident_bytes;

/// The benchmark starts itself with `--keep entries`.
pub(crate) const FLAG: &str = "--keep";

pub(crate) fn run(effort: Effort) {
    let (entries, processes) = if effort.is_smoke() { (100, 1) } else { (10_000, 3) };
    let case = format!("{} targets of 2 KB, room for {entries}", 2 * entries);
    let outcomes: Vec<_> =
        iter::repeat_with(|| in_another_process(entries)).take(processes).collect();
    let grown = Spread::of(outcomes.iter().map(|(grown, _)| grown / entries as f64));
    let counted = Spread::of(outcomes.iter().map(|(_, counted)| counted / entries as f64));
    let ratio = Spread::of(outcomes.iter().map(|(grown, counted)| grown / counted));
    for (name, bytes) in [("more resident, per entry", grown), ("counted, per entry", counted)] {
        line("kept", &case, name, &format!("{:>10.0} bytes", bytes.median), effort.is_smoke());
    }
    let figure = format!("{:>10.2}{}", ratio.median, Wanted::AtMost(1.5).verdict(ratio));
    line("kept", &case, "resident / counted", &figure, effort.is_smoke());
}

/// The growth of the resident memory and what the store counts, in bytes.
fn in_another_process(entries: usize) -> (f64, f64) {
    let program = env::current_exe().expect("the path of this program");
    let child = Command::new(program).args([FLAG, &entries.to_string()]).output();
    let child = child.expect("this program runs");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let printed = String::from_utf8_lossy(&child.stdout);
    let mut bytes = printed.split_whitespace().map(|word| word.parse().expect("a number"));
    (bytes.next().expect("the growth"), bytes.next().expect("the count"))
}

/// Prints how much the resident memory grows and how much of it the store counts.
pub(crate) fn measure(entries: &str) {
    let entries: usize = entries.parse().expect("a number");
    Runtime::new().expect("a runtime").block_on(async {
        let store = MemoryStore::new(entries);
        let server = serve_pages(HttpCacheLayer::builder(store.clone()).build().unwrap()).await;
        // The connections and the code have their memory before.
        ask_for(server, 0..entries / 100).await;
        let before = resident_bytes();
        ask_for(server, entries..3 * entries).await;
        println!("{} {}", resident_bytes().saturating_sub(before), store.stats().bytes);
    });
}

async fn serve_pages(layer: HttpCacheLayer) -> SocketAddr {
    let page = async || ([(CACHE_CONTROL, "max-age=3600")], vec![b'x'; PAGE]);
    let router = Router::new().route("/{target}", get(page)).layer(layer);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { serve(listener, router).await });
    address
}

/// Asks for each target once, over several connections in turn.
async fn ask_for(server: SocketAddr, targets: impl IntoIterator<Item = usize>) {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(BufReader::new(TcpStream::connect(server).await.expect("a connection")));
    }
    for target in targets {
        ask(&mut connections[target % CONNECTIONS], target).await;
    }
}

async fn ask(connection: &mut BufReader<TcpStream>, target: usize) {
    let request = format!("GET /{target} HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    connection.write_all(request.as_bytes()).await.expect("the server reads");
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = connection.read_line(&mut head).await.expect("the server answers");
        assert_ne!(read, 0, "the server closed the connection after {head}");
    }
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut body = vec![0; PAGE];
    connection.read_exact(&mut body).await.expect("a whole body");
}

const CONNECTIONS: usize = 8;

/// Bytes of a page.
const PAGE: usize = 2_000;
