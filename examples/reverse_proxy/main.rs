//! A caching reverse proxy:
//! `cargo run -p bellwether-reverse-proxy -- --origin http://127.0.0.1:8000`.

mod proxy;

use std::error::Error;
use std::net::SocketAddr;

use bellwether::{MemoryStore, RedisStore};
use bellwether_http::HttpCacheLayer;
use clap::Parser;
use http::Uri;
use tokio::net::TcpListener;

/// Stores what an origin permits to be stored, and coalesces concurrent requests into one.
#[derive(Parser)]
struct Args {
    /// The origin, which answers requests that no stored response answers
    #[arg(long)]
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
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let layer = match args.store.as_str() {
        "memory" => HttpCacheLayer::new(MemoryStore::new(args.entries)),
        url => HttpCacheLayer::new(RedisStore::connect(url).await?),
    };
    let listener = TcpListener::bind(args.listen).await?;
    println!("http://{}", listener.local_addr()?);
    proxy::serve(listener, &args.origin, &layer).await?;
    Ok(())
}
