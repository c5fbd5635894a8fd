//! A caching reverse proxy:
//! `cargo run -p bellwether-reverse-proxy -- --origin http://127.0.0.1:8000`.

mod options;
mod proxy;
#[path = "../shared/shown.rs"]
mod shown;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use bellwether::MemoryStore;
use bellwether_http::HttpCacheLayer;
use bellwether_redis::RedisStore;
use clap::Parser;
use http::Uri;
use shown::shown;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Stores what an origin permits to be stored, and coalesces concurrent requests into one.
#[derive(Parser)]
#[command(name = "reverse_proxy")]
struct Args {
    /// The origin, which answers requests that no stored response answers
    #[arg(long, value_name = "http://HOST:PORT", value_parser = origin)]
    origin: Uri,
    /// The address to listen on; port 0 is any free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where responses are stored: `memory`, or `redis://HOST:PORT` to share them with other proxies
    #[arg(long, default_value = "memory")]
    store: String,
    /// How many responses are stored in memory at most
    #[arg(long, default_value_t = 10_000)]
    entries: usize,
    /// How many threads serve connections; by default, one for each processor
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
}

/// Reads the URI of an origin, which says how to reach it.
fn origin(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|fault| format!("{fault}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(_)) => Ok(uri),
        _ => Err("an origin begins with http:// and a host".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let served = runtime(args.workers).map_err(Into::into).and_then(|it| it.block_on(run(args)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("reverse_proxy: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// A single worker shares nothing with other threads, so its requests cost less.
fn runtime(workers: Option<u16>) -> io::Result<Runtime> {
    let mut builder = match workers {
        Some(1) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let Some(workers) = workers {
        builder.worker_threads(workers.into());
    }
    builder.enable_all().build()
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let layer = match args.store.as_str() {
        "memory" => HttpCacheLayer::builder(MemoryStore::new(args.entries)),
        url => {
            let store = RedisStore::connect(url, "shop").await;
            HttpCacheLayer::builder(
                store.map_err(|fault| format!("--store {}: {fault}", shown(url)))?,
            )
        }
    };
    let layer = options::set(layer).build()?;
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.map_err(|fault| format!("--listen {}: {fault}", args.listen))?;
    println!("http://{}", listener.local_addr()?);
    proxy::serve(listener, &args.origin, &layer).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_says_how_to_reach_it() {
        assert!(origin("http://127.0.0.1:8000").is_ok());
        for text in ["127.0.0.1:8000", "/index.html", "https://example.org", "http://"] {
            let error = Args::try_parse_from(["reverse_proxy", "--origin", text]).err();
            let complaint = error.expect(text).to_string();
            assert!(complaint.contains("--origin") && complaint.contains(text), "{complaint}");
        }
    }
}
