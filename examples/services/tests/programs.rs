//! Each program, as a user starts it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bellwether_testkit::servers::{PostgresServer, RedisServer};

/// A program that runs. It is killed when this is dropped.
struct Program {
    child: Child,
    address: String,
}

impl Program {
    /// Starts it on a free port, and waits until it says which.
    fn start(command: &mut Command) -> Self {
        let command = command.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("http://").expect("its address").to_owned();
        Self { child, address }
    }

    /// The whole response.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close");
        write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it answers");
        response
    }

    fn get(&self, path: &str) -> String {
        self.ask("GET", path, "")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn two_processes_of_a_shop_serve_a_change_at_once() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_axum_postgres_redis"));
        Program::start(command.env("REDIS_URL", redis.url()).env("DATABASE_URL", postgres.url()))
    };
    let (one, two) = (start(), start());
    for shop in [&one, &two] {
        assert!(shop.get("/items/1").ends_with(r#"{"id":1,"name":"jug"}"#));
    }
    assert!(one.ask("PUT", "/items/1/name", "blue jug").starts_with("HTTP/1.1 204"));
    for shop in [&two, &one] {
        assert!(shop.get("/items/1").ends_with(r#"{"id":1,"name":"blue jug"}"#));
    }
    assert!(two.get("/items/7").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_shop_that_gets_sigterm_ends_with_success() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let mut command = Command::new(env!("CARGO_BIN_EXE_axum_postgres_redis"));
    let command = command.env("REDIS_URL", redis.url()).env("DATABASE_URL", postgres.url());
    let mut shop = Program::start(command);
    // It answers, so it also awaits the signal.
    assert!(shop.get("/items/1").starts_with("HTTP/1.1 200"));
    let told = Command::new("kill").args(["-TERM", &shop.child.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    assert!(shop.child.wait().expect("it ends").success());
}

#[test]
fn a_shop_says_why_a_load_fails_and_its_client_does_not_hear_it() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let mut command = Command::new(env!("CARGO_BIN_EXE_axum_postgres_redis"));
    command.env("REDIS_URL", redis.url()).env("DATABASE_URL", postgres.url());
    let mut shop = Program::start(command.stderr(Stdio::piped()));
    postgres.command("DROP TABLE items");
    let response = shop.get("/items/2");
    assert!(response.starts_with("HTTP/1.1 502") && !response.contains("relation"), "{response}");
    let lines = BufReader::new(shop.child.stderr.take().expect("its log")).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    let line = lines.find(|line| line.contains("a load failed")).expect("a reason");
    assert!(line.contains(r#"relation "items" does not exist"#), "{line}");
}

#[test]
fn a_price_that_psql_changes_is_asked_for_again() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let mut command = Command::new(env!("CARGO_BIN_EXE_postgres_triggers"));
    let command = command.env("REDIS_URL", redis.url()).env("DATABASE_URL", postgres.url());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    for cents in ["999 cents", "1234 cents"] {
        assert_eq!(lines.next().as_deref(), Some("asks the database"));
        assert_eq!(lines.next().as_deref(), Some(cents));
        postgres.command("UPDATE prices SET cents = 1234");
    }
    _ = child.kill();
    _ = child.wait();
}

#[test]
fn a_thousand_requests_to_a_service_are_one_query() {
    let output = Command::new(env!("CARGO_BIN_EXE_tower_service")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("1000 answers, 1 query\n"), "{said}");
    assert!(said.contains("there is no item 7000\n"), "{said}");
}

#[test]
fn a_response_is_stored_as_its_handler_says() {
    let program = Program::start(&mut Command::new(env!("CARGO_BIN_EXE_http_layer")));
    for _ in 0..2 {
        assert!(program.get("/items/1").ends_with("item 1, by query 1\n"));
    }
    assert!(program.get("/items/1").contains("; hit"));
    assert!(!program.get("/basket").contains("; hit"));
    assert!(!program.get("/basket").contains("; hit"));
}

#[test]
fn a_method_of_tonic_is_called_once_for_equal_calls() {
    let output = Command::new(env!("CARGO_BIN_EXE_tonic_method")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("100 answers, 1 call of the method\n"), "{said}");
}

#[test]
fn prometheus_gets_the_statistics_of_the_cache() {
    let program = Program::start(&mut Command::new(env!("CARGO_BIN_EXE_metrics_prometheus")));
    assert!(program.get("/squares/7").ends_with("49"));
    let metrics = program.get("/metrics");
    assert!(metrics.contains("bellwether_requests_total{cache=\"square\""), "{metrics}");
}
