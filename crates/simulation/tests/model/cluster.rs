//! The nodes of a simulated Cluster, and a replica, against real ones.

use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use bellwether_simulation::{ClusterView, ModelServer, ServerRole};

use super::programs::words;
use super::real::{RealServer, read_until, request, send, version};

/// What is sent to the first and to the second node before the slot of `{b}` moves. That of `{a}` is one of the second.
const BEFORE: [&str; 12] = [
    "CLUSTER SLOTS",
    "SET {b}:1 one",
    "SET {b}:2 two",
    "GET {b}:1",
    "GET {a}:1",
    "MGET {a}:1 {a}:2",
    "MGET {a}:1 {b}:1",
    "MGET {b}:1 {b}:none",
    "EVAL return 1 2 {b}:1 {a}:1",
    "EVAL return 1 1 {a}:1",
    "EVAL return 1 0",
    "ASKING",
];

/// What is sent while that slot moves. `{b}:1` is with the first node, and `{b}:2` with the second.
const MEANWHILE: [&str; 14] = [
    "GET {b}:1",
    "GET {b}:2",
    "SET {b}:3 three",
    "MGET {b}:1 {b}:2",
    "MGET {b}:2 {b}:3",
    "EVAL return 1 2 {b}:1 {b}:2",
    "EVAL return 1 2 {b}:2 {b}:3",
    "ASKING",
    "GET {b}:2",
    "ASKING",
    "MGET {b}:2 {b}:3",
    "ASKING",
    "GET {b}:3",
    "GET {b}:2",
];

/// Two real nodes that have met, each with half of the slots, links to them, and their names.
fn met(now: &mut u64) -> ([RealServer; 2], [TcpStream; 2], [String; 2]) {
    let cluster = ["--cluster-enabled", "yes"];
    let real = [(); 2].map(|()| RealServer::start_with(*now, &cluster));
    let mut streams = real.each_ref().map(RealServer::connect);
    let id = streams.each_mut().map(|stream| {
        let id = ask(stream, "CLUSTER MYID");
        String::from_utf8(id[5..45].to_vec()).expect("an id")
    });
    for (stream, slots) in streams.iter_mut().zip([0..8192, 8192..16384]) {
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        ask(stream, &format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
    }
    ask(&mut streams[1], "CLUSTER SET-CONFIG-EPOCH 2");
    let meet = format!("CLUSTER MEET 127.0.0.1 {}", real[1].port());
    ask(&mut streams[0], &meet);
    for round in 0.. {
        assert!(round < 200, "the nodes do not meet");
        *now += 100_000;
        real.iter().for_each(|server| server.set_clock(*now));
        sleep(Duration::from_millis(50));
        let info = streams.each_mut().map(|stream| ask(stream, "CLUSTER INFO"));
        let is_ok = |info: &Vec<u8>| info.windows(16).any(|it| it == b"cluster_state:ok");
        if info.iter().all(is_ok) {
            break;
        }
    }
    (real, streams, id)
}

#[test]
fn nodes_of_a_simulated_cluster_refuse_as_real_ones() {
    let mut now = 1_700_000_000_000_000;
    let (real, streams, id) = met(&mut now);
    let address = real.each_ref().map(|server| format!("127.0.0.1:{}", server.port()));
    let view = |node: usize| ClusterView {
        own: address[node].clone(),
        ranges: [0..=8191, 8192..=16383]
            .into_iter()
            .zip(address.clone().map(|it| vec![it]))
            .collect(),
        ..ClusterView::default()
    };
    let models = [0, 1].map(|node| {
        let mut model = model();
        model.set_role(ServerRole::Node(view(node)));
        model
    });
    let mut nodes = Nodes { streams, models, now };
    nodes.compare(&BEFORE);
    nodes.send_both(0, "DEL {b}:2");
    let slot = 3300;
    for (node, what) in ["MIGRATING", "IMPORTING"].into_iter().enumerate() {
        let set = format!("CLUSTER SETSLOT {slot} {what} {}", id[1 - node]);
        ask(&mut nodes.streams[node], &set);
        let moving = Some((slot..=slot, address[1 - node].clone()));
        nodes.models[node].set_role(ServerRole::Node(ClusterView { moving, ..view(node) }));
    }
    nodes.send_both(1, "ASKING");
    nodes.send_both(1, "SET {b}:2 two");
    nodes.compare(&MEANWHILE);
}

#[test]
fn a_simulated_replica_refuses_as_a_real_one() {
    let now = 1_700_000_000_000_000;
    let real = [RealServer::start(now)];
    let streams = real.each_ref().map(RealServer::connect);
    let mut nodes = Nodes { streams, models: [model()], now };
    nodes.compare(&["ROLE", "SET a one"]);
    ask(&mut nodes.streams[0], "REPLICAOF 127.0.0.1 1");
    nodes.models[0].set_role(ServerRole::Replica("127.0.0.1:1".into()));
    nodes.compare(&[
        "GET a",
        "SET a two",
        "DEL a",
        "PUBLISH a b",
        "EVAL_GET",
        "EVAL_SET",
        "HELLO 2",
    ]);
}

/// A simulated server with a connection.
fn model() -> ModelServer {
    let mut model = ModelServer::new(version(), [].into());
    model.connect();
    model
}

/// Real servers and models of them.
struct Nodes<const N: usize> {
    streams: [TcpStream; N],
    models: [ModelServer; N],
    now: u64,
}

impl<const N: usize> Nodes<N> {
    /// Sends commands to each server, and compares the replies.
    fn compare(&mut self, commands: &[&str]) {
        for node in 0..N {
            commands.iter().for_each(|command| self.send_both(node, command));
        }
    }

    fn send_both(&mut self, node: usize, command: &str) {
        let model = &mut self.models[node];
        let words = words_of(command);
        model.receive(1, &request(&words), self.now);
        let answer = model.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
        let real = ask_words(&mut self.streams[node], &words);
        let [real, model] = [real, answer].map(without_ids);
        assert_eq!(real, model, "{command} to {node}");
    }
}

fn words_of(command: &str) -> Vec<Vec<u8>> {
    match command {
        "EVAL_GET" => script("return redis.call('GET', KEYS[1])"),
        "EVAL_SET" => script("return redis.call('SET', KEYS[1], 'three')"),
        _ => match command.strip_prefix("EVAL return 1 ") {
            Some(rest) => {
                let text = [b"EVAL".to_vec(), b"return 1".to_vec()];
                text.into_iter().chain(words(rest)).collect()
            }
            None => words(command),
        },
    }
}

fn script(text: &str) -> Vec<Vec<u8>> {
    ["EVAL", text, "1", "a"].map(|word| word.as_bytes().to_vec()).into()
}

/// The reply to a command.
fn ask(stream: &mut TcpStream, command: &str) -> Vec<u8> {
    ask_words(stream, &words(command))
}

fn ask_words(stream: &mut TcpStream, words: &[Vec<u8>]) -> Vec<u8> {
    send(stream, words);
    if words[0] == b"ASKING" {
        // It is about the next command.
        return read_until(stream, b"\r\n");
    }
    // The reply to this is behind the other one.
    let last = b"$4\r\nlast\r\n";
    send(stream, &[b"PING".to_vec(), b"last".to_vec()]);
    let mut reply = read_until(stream, last);
    reply.truncate(reply.len() - last.len());
    reply
}

/// A reply as text, in which all nodes and connections have one number, and without the modules of a server.
fn without_ids(reply: Vec<u8>) -> String {
    let text = reply.escape_ascii().to_string();
    let text = text.split("$7\\r\\nmodules").next().unwrap_or_default();
    let mut parts = text.split("$40\\r\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| text + "$40" + &part[40..]);
    match text.split_once("$2\\r\\nid\\r\\n:") {
        Some((before, after)) => {
            before.to_owned() + after.trim_start_matches(|it: char| it.is_ascii_digit())
        }
        None => text,
    }
}
