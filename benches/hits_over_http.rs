//! A hot key over real connections: an axum route behind the cache with a near tier, against the
//! same route without one, whose handler returns what it has at hand. The worst case for a cache.
//!
//! `h2load`, a program of others, asks over HTTP/1.1 and over HTTP/2. Its own work is the same for
//! both, and takes a processor that the server would have too.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use axum::http::header::CACHE_CONTROL;
use axum::routing::get;
use axum::{Router, serve};
use bellwether_http::HttpCacheLayer;
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};

pub(crate) fn run(effort: Effort) {
    let server = RedisServer::start();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let layer = runtime.block_on(async {
        let options = RedisOptions::new(&server.url(), "test").expect("a url");
        let options = options.near(1 << 20);
        HttpCacheLayer::builder(options.connect().await.expect("a store")).build().unwrap()
    });
    let bare = serve_on(&runtime, route());
    let cached = serve_on(&runtime, route().layer(layer));
    for (case, flags) in [("HTTP/1.1", &["--h1"][..]), ("HTTP/2", &["-m10"])] {
        let mut race = Race::new("http", case);
        let ours = race.enter("bellwether", EACH, |times| ask(&cached, flags, times));
        let handler = race.enter("the bare route", EACH, |times| ask(&bare, flags, times));
        let outcome = race.run(effort.in_turns_of_programs());
        outcome.print(&[ours, handler]);
        outcome.print_rate(ours, handler, Wanted::AtLeast(0.8));
        outcome.print_more_cpu(ours, handler);
    }
}

fn route() -> Router {
    Router::new().route("/", get(async || ([(CACHE_CONTROL, "max-age=3600")], PAGE)))
}

/// Serves a router, and tells where.
fn serve_on(runtime: &Runtime, router: Router) -> String {
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    runtime.spawn(async move { serve(listener, router).await });
    url
}

/// Asks [`EACH`] times so many times over, and takes the time from the program's own report: it
/// does not count how long the program takes to start.
fn ask(url: &str, flags: &[&str], times: usize) -> Took {
    let requests = (EACH * times).to_string();
    let mut command = Command::new("h2load");
    command.args(["-t1", "-c32", "-n", &requests]).args(flags).arg(url);
    let mut said = String::new();
    let took = timed(|| {
        let output = command.output();
        let output = output.expect("h2load runs (`apt-get install nghttp2-client` has it)");
        said = String::from_utf8_lossy(&output.stdout).into_owned();
    });
    assert!(said.contains(&format!("{requests} succeeded, 0 failed")), "{said}");
    let finished = said.split_once("finished in ").expect("how long it took").1;
    took.lasting(duration(finished.split(',').next().unwrap_or_default()))
}

/// As `h2load` writes it: `1.23s`, `45.67ms` or `890us`.
fn duration(text: &str) -> Duration {
    let at = text.find(|one: char| one.is_alphabetic()).expect("a unit");
    let number: f64 = text[..at].parse().expect("a number");
    let unit = match &text[at..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        unit => panic!("no unit that is known: {unit}"),
    };
    Duration::from_secs_f64(number * unit)
}

const EACH: usize = 1_000;

const PAGE: &str = "A page of text, as long as a small answer in JSON is.";
