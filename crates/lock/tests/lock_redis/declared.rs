//! Every name that a script touches is among its KEYS, and all of them are in one slot.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use bellwether_lock::{
    FairLock, Lock, RedisLock, Redlock, ReentrantLock, conformance::Conformance,
};
use bellwether_redis::RedisOptions;
use bellwether_test::conformance as store_conformance;

use crate::world::{LONG, claim, key, options, options_of, queue_up, take};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::within;

/// Everything that a server runs, as `MONITOR` reports it, until this is ended.
struct Monitor<'a> {
    server: &'a RedisServer,
    lines: JoinHandle<Vec<String>>,
}

impl<'a> Monitor<'a> {
    fn start(server: &'a RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.write_all(b"MONITOR\r\n").expect("it is sent");
        let mut reports = BufReader::new(stream).lines();
        let begun = reports.next().expect("an answer").expect("an answer");
        assert_eq!(begun, "+OK");
        let lines = thread::spawn(move || {
            let reports = reports.map(|line| line.expect("a report"));
            reports.take_while(|line| !line.contains(END)).collect()
        });
        Self { server, lines }
    }

    fn end(self) -> Vec<String> {
        self.server.command(&["ECHO", END]);
        self.lines.join().expect("all reports")
    }
}

const END: &str = "the end of what is watched";

/// The words of a report, as they are escaped there.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some((_, quoted)) = rest.split_once('"') {
        let mut is_escaped = false;
        let end = quoted.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let end = end.expect("a closing quote");
        words.push(&quoted[..end]);
        rest = &quoted[end + 1..];
    }
    words
}

/// The names among the words of a command that a script runs.
fn touched<'a, 'b>(command: &'b [&'a str]) -> &'b [&'a str] {
    let names = match command[0].to_ascii_uppercase().as_str() {
        // A channel is no name.
        "TIME" | "PUBLISH" => 0,
        "DEL" => command.len() - 1,
        _ => 1,
    };
    &command[1..=names]
}

/// What scripts touched without being given it, by their hashes; and all of those.
#[derive(Debug, Default)]
struct Findings {
    scripts: BTreeSet<String>,
    undeclared: BTreeMap<String, BTreeSet<String>>,
}

impl Findings {
    fn add(&mut self, lines: &[String]) {
        let (mut hash, mut declared) = (String::new(), Vec::new());
        for line in lines {
            let words = words(line);
            if line.contains(" lua] ") {
                for name in touched(&words) {
                    if !declared.iter().any(|it: &String| it == name) {
                        let of_script = self.undeclared.entry(hash.clone()).or_default();
                        of_script.insert((*name).to_owned());
                    }
                }
            } else if let ["EVALSHA" | "EVAL", script, count, rest @ ..] = words.as_slice() {
                hash = (*script).to_owned();
                let count: usize = count.parse().expect("a number");
                declared = rest[..count].iter().map(ToString::to_string).collect();
                if words[0] == "EVALSHA" {
                    self.scripts.insert(hash.clone());
                }
            }
        }
    }
}

/// Where a connection is told of changes, Redis before 7.2 is not given all names: see
/// `bellwether_lock::redis`. So these speak RESP2.
#[tokio::test]
async fn every_name_that_a_script_touches_is_declared_but_the_calls_of_waiters() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let monitors = servers.each_ref().map(Monitor::start);
    let untracked = || options(&servers[0]).resp2();
    let store = RedisOptions::from(untracked()).connect().await.expect("a store");
    assert_eq!(store_conformance::run(store).await, []);
    let redis = RedisLock::connect(untracked()).await.expect("a lock");
    assert_eq!(Conformance::of(redis.clone()).take_over().run().await, []);
    redis.verify(&claim(1)).expect("it can be verified").await.expect("an answer");
    crate::crowd::visit(&redis).await;
    let fair = FairLock::connect(untracked()).await.expect("a lock");
    assert_eq!(Conformance::of(fair.clone()).queue().run().await, []);
    let (holder, waiter) = (claim(1), claim(1));
    take(&fair, &holder, LONG).await;
    queue_up(&fair, &waiter).await;
    crate::world::free(&fair, &holder).await;
    take(&fair, &waiter, LONG).await;
    let reentrant = ReentrantLock::connect(untracked()).await.expect("a lock");
    assert_eq!(Conformance::of(reentrant.clone()).reentrant().run().await, []);
    reentrant.holds(key(1)).await.expect("a count");
    reentrant.verify(&claim(1)).expect("it can be verified").await.expect("an answer");
    let nodes = servers.iter().map(|server| options(server).resp2());
    let redlock = Redlock::connect(nodes).await.expect("a lock");
    assert_eq!(Conformance::of(redlock).run().await, []);
    let mut findings = Findings::default();
    for monitor in monitors {
        findings.add(&monitor.end());
    }
    // Nine of the store, six of the plain lock, and what the other kinds have of their own.
    assert_eq!(findings.scripts.len(), 9 + 6 + 2 + 5 + 3, "{:?}", findings.scripts);
    let others =
        findings.undeclared.values().flatten().filter(|name| !name.contains(":fair:call:"));
    assert_eq!(others.count(), 0, "{:?}", findings.undeclared);
    assert!(!findings.undeclared.is_empty(), "the monitor sees what is not declared");
}

/// A node with all slots refuses scripts whose names are in two.
#[tokio::test]
async fn all_names_of_a_key_are_in_one_slot_of_a_cluster() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    server.own_all_slots();
    let is_whole = || server.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok");
    within(LONG, is_whole).await;
    let options = || options_of(&format!("redis-cluster://127.0.0.1:{}", server.port()));
    let redis = RedisLock::connect_lazily(options()).expect("options");
    assert_eq!(Conformance::of(redis).fenced().run().await, []);
    let fair = FairLock::connect_lazily(options()).expect("options");
    assert_eq!(Conformance::of(fair).fenced().run().await, []);
    let reentrant = ReentrantLock::connect_lazily(options()).expect("options");
    assert_eq!(Conformance::of(reentrant).fenced().run().await, []);
    let store = RedisOptions::from(options()).connect_lazily().expect("options");
    assert_eq!(store_conformance::run(store).await, []);
}
