//! A caching reverse proxy:
//! `cargo run --features http --example reverse_proxy -- --origin http://127.0.0.1:8000`.

mod proxy;

use std::error::Error;
use std::net::SocketAddr;

use bellwether::{MemoryStore, RedisStore};
use bellwether_http::HttpCacheLayer;
use clap::Parser;
use http::Uri;
use tokio::net::TcpListener;

/// Keeps what an origin says may be kept, and asks it once for what a crowd asks for.
#[derive(Parser)]
struct Args {
    /// Where requests go that cannot be answered from what is kept
    #[arg(long)]
    origin: Uri,
    /// Where to listen; port 0 is any that is free
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where responses are kept: `memory`, or `redis://HOST:PORT` to share them with other proxies
    #[arg(long, default_value = "memory")]
    store: String,
    /// How many responses are kept in memory at most
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
