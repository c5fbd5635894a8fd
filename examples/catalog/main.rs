//! A shop in three processes over one database, and a page that shows how often they query it.
//!
//! ```text
//! cargo run --release -p bellwether-catalog
//! ```
//!
//! Then open <http://127.0.0.1:8080>, and press "Play the story". This program starts three processes of itself
//! ([`worker`]), and a Redis and a PostgreSQL that they share, if these are installed. Without a Redis there is one
//! process, with a store in memory; `--store redis://127.0.0.1:6379` takes another one. Without a PostgreSQL there is
//! a file of SQLite, and no change by SQL; `--database postgres://127.0.0.1/shop` takes another one. Each process
//! answers the same requests in three ways, by the same queries:
//!
//! - **unprotected**: every request queries the database;
//! - **moka**: the callers of a process share a query, and its cache keeps the answer;
//! - **protected**: all processes share it, by [`bellwether::Cache`] ([`protected`]).
//!
//! Visitors come by themselves, to all ways at the same rate ([`traffic`]). The buttons of the page
//! change prices and break things ([`scenes`]). Each process can be asked, too:
//!
//! ```text
//! curl -i 'http://127.0.0.1:8081/api/product/42'
//! curl -i 'http://127.0.0.1:8082/api/product/42?way=unprotected'
//! curl -d '{"price_cents": 999}' -H 'content-type: application/json' \
//!     'http://127.0.0.1:8083/api/product/42'
//! curl 'http://127.0.0.1:8081/metrics'
//! ```

mod args;
#[path = "../shared/catalog.rs"]
mod catalog;
mod changes;
mod demo;
mod figures;
mod fleet;
mod front;
mod own_server;
mod postgres_server;
mod protected;
mod redis_server;
mod scenes;
mod shop;
mod source;
mod stats;
#[path = "../shared/tables/mod.rs"]
mod tables;
mod timings;
mod traffic;
mod way;
mod worker;

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

use args::Args;

/// What ends the program, or one answer, in words for a person.
type Fault = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::from_command_line();
    let warnings = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN);
    warnings.with_writer(std::io::stderr).init();
    let ended = if args.is_worker() { worker::run(&args).await } else { front::run(&args).await };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("catalog: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses what a page of another origin has a browser send: it may change nothing here.
async fn of_this_origin(request: Request, next: Next) -> Response {
    let is_ours = {
        let header = |name| request.headers().get(name).map(|value| value.as_bytes());
        header(header::ORIGIN).is_none_or(|origin| {
            let http = origin.strip_prefix(b"http://");
            http.or_else(|| origin.strip_prefix(b"https://")) == header(header::HOST)
        })
    };
    if is_ours || request.method().is_safe() {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "another origin\n").into_response()
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Fault> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|fault| format!("--listen {address}: cannot listen there: {fault}").into())
}
