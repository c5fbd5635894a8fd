//! The example as a test asks it.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::response::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bellwether_testkit::processes::Program;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A running catalog. It ends on drop.
pub(crate) struct Catalog {
    _program: Program,
    page: String,
    processes: Vec<String>,
}

/// An answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
}

impl Catalog {
    /// On SQLite, which is there at once.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(&[], &[&["--database", "sqlite"], args].concat())
    }

    /// With these settings of the environment, each as `NAME=value`, and with all that is installed.
    pub(crate) fn start_in(environment: &[&str], args: &[&str]) -> Self {
        let anywhere = ["--listen", "127.0.0.1:0"];
        let command = [environment, &[env!("CARGO_BIN_EXE_catalog")], &anywhere, args].concat();
        let program = Program::start("env", &command);
        let (page, processes) = program.said(|line| {
            let (page, processes) = line.strip_prefix("catalog: ")?.split_once(" (processes: ")?;
            let processes = processes.strip_suffix(')')?.split(' ').map(str::to_owned);
            Some((page.to_owned(), processes.collect()))
        });
        Self { _program: program, page, processes }
    }

    /// Where its page is.
    pub(crate) fn url(&self) -> &str {
        &self.page
    }

    pub(crate) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Where its processes listen, as targets of Prometheus.
    pub(crate) fn targets(&self) -> Vec<&str> {
        self.processes.iter().map(|url| url.trim_start_matches("http://")).collect()
    }

    /// The metrics of a process, as Prometheus reads them.
    pub(crate) async fn metrics(&self, process: usize) -> String {
        read(&format!("{}/metrics", self.processes[process])).await
    }

    /// Asks a process.
    pub(crate) async fn get(&self, process: usize, path: &str) -> Answer {
        ask(Method::GET, &format!("{}{path}", self.processes[process]), "").await
    }

    /// The URL of a process.
    pub(crate) fn process(&self, process: usize) -> &str {
        &self.processes[process]
    }

    pub(crate) async fn post(&self, process: usize, path: &str, json: &str) -> Answer {
        ask(Method::POST, &format!("{}{path}", self.processes[process]), json).await
    }

    /// Presses a button of its page.
    pub(crate) async fn press(&self, button: &str) -> Answer {
        ask(Method::POST, &format!("{}/demo/{button}", self.page), "").await
    }
}

impl Answer {
    /// How it came about.
    pub(crate) fn cache_status(&self) -> &str {
        let status = self.headers.get("cache-status");
        status.map_or("", |status| status.to_str().expect("plain text"))
    }
}

/// Asks any server, with a body of JSON if there is one.
pub(crate) async fn ask(method: Method, url: &str, json: &str) -> Answer {
    answer(bytes(method, url, json, None).await)
}

/// Posts as a browser does for a page of an origin.
pub(crate) async fn post_from(origin: &str, url: &str) -> Answer {
    answer(bytes(Method::POST, url, "", Some(origin)).await)
}

fn answer((parts, body): (Parts, Bytes)) -> Answer {
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Answer { status: parts.status, headers: parts.headers, json }
}

/// The text at a URL.
pub(crate) async fn read(url: &str) -> String {
    String::from_utf8(bytes(Method::GET, url, "", None).await.1.into()).expect("a text")
}

async fn bytes(method: Method, url: &str, json: &str, origin: Option<&str>) -> (Parts, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder();
    let request = match origin {
        Some(origin) => request.header("origin", origin),
        None => request,
    };
    let request = request
        .method(method)
        .uri(url)
        .header("content-type", "application/json")
        .body(Body::from(json.to_owned()))
        .expect("a request");
    let (parts, body) = client.request(request).await.expect("it answers").into_parts();
    (parts, to_bytes(Body::new(body), usize::MAX).await.expect("a whole body"))
}
