//! The processes of the shop, as this program starts and asks them.

use std::net::SocketAddr;
use std::process::Stdio;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use futures_util::future::try_join_all;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Fault;
use crate::args::Args;

/// Dropping it ends the processes.
pub(crate) struct Fleet {
    workers: Vec<Worker>,
    client: Client<HttpConnector, Body>,
}

/// A process.
struct Worker {
    url: String,
    _child: Child,
}

impl Fleet {
    /// Starts them over a store and a database, and waits until each serves.
    pub(crate) async fn start(
        args: &Args,
        store: &str,
        database: &str,
        workers: u16,
    ) -> Result<Self, Fault> {
        let workers = (1..=workers).map(|number| Worker::start(args, store, database, number));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { workers: try_join_all(workers).await?, client })
    }

    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Where they are.
    pub(crate) fn urls(&self) -> Vec<&str> {
        self.workers.iter().map(|worker| &*worker.url).collect()
    }

    pub(crate) async fn get(&self, worker: usize, path: &str) -> Result<Value, Fault> {
        self.ask(worker, Method::GET, path, String::new()).await
    }

    pub(crate) async fn post(
        &self,
        worker: usize,
        path: &str,
        body: Value,
    ) -> Result<Value, Fault> {
        self.ask(worker, Method::POST, path, body.to_string()).await
    }

    /// Asks all of them at once.
    pub(crate) async fn get_all(&self, path: &str) -> Result<Vec<Value>, Fault> {
        try_join_all((0..self.len()).map(|worker| self.get(worker, path))).await
    }

    pub(crate) async fn post_all(&self, path: &str) -> Result<Vec<Value>, Fault> {
        try_join_all((0..self.len()).map(|worker| self.post(worker, path, Value::Null))).await
    }

    async fn ask(
        &self,
        worker: usize,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Value, Fault> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.workers[worker].url))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))?;
        let response = self.client.request(request).await?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), usize::MAX).await?;
        let answer = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status.is_success() { Ok(answer) } else { Err(answer["error"].to_string().into()) }
    }
}

impl Worker {
    async fn start(args: &Args, store: &str, database: &str, number: u16) -> Result<Self, Fault> {
        let port = match args.listen.port() {
            0 => 0,
            port => port + number,
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--worker", "--store", store, "--database", database])
            .args(["--load-ms", &args.load_ms.to_string()])
            .args(["--listen", &SocketAddr::new(args.listen.ip(), port).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let said = child.stdout.take().ok_or("a process without output")?;
        let address = BufReader::new(said).lines().next_line().await?;
        let address = address.ok_or_else(|| format!("process {number} does not start"))?;
        Ok(Self { url: format!("http://{address}"), _child: child })
    }
}
