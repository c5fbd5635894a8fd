//! The product catalog of the load test as a service, and a page that shows what happens to it.
//!
//! ```text
//! cargo run --release -p bellwether-catalog
//! cargo run --release -p bellwether-catalog -- --store redis://127.0.0.1:6379
//! ```
//!
//! Then open <http://127.0.0.1:8080>. The same catalog is answered in three ways, by the same
//! queries, each with a pool of connections of its own:
//!
//! - **protected**: through [`bellwether::Cache`]s ([`shop`]);
//! - **plain**: through a plain cache with the same times to live ([`plain`], `?protect=plain`);
//! - **unprotected**: every request queries the database (`?protect=off`).
//!
//! A modest traffic goes on by itself, all ways at the same rate ([`traffic`]), so that the page
//! has something to show. Its buttons burst, slow and break things ([`demo`]).
//!
//! ```text
//! curl 'http://127.0.0.1:8080/api/product/42'
//! curl 'http://127.0.0.1:8080/api/product/42?protect=off'
//! curl 'http://127.0.0.1:8080/api/search?q=lamp&page=2'
//! curl 'http://127.0.0.1:8080/api/categories'
//! curl -d '{"price_cents": 999}' -H 'content-type: application/json' \
//!     'http://127.0.0.1:8080/api/product/42'
//! ```
//!
//! The same is answered over gRPC: see `grpc/catalog.proto`.
//!
//! What happens can be observed ([`figures`], [`observer`], [`traces`], [`otlp`]):
//!
//! ```text
//! curl 'http://127.0.0.1:8080/metrics'
//! cargo run --release -p bellwether-catalog -- --observe    # a Prometheus with our alerts
//! cargo run --release -p bellwether-catalog -- --trace      # each request, to the database
//! cargo run --release -p bellwether-catalog -- --otlp http://127.0.0.1:4317    # to a collector
//! ```

mod args;
#[path = "../shared/catalog.rs"]
mod catalog;
mod demo;
mod figures;
mod grpc;
mod observer;
mod otlp;
mod page;
mod plain;
mod shop;
mod source;
mod stats;
mod switch;
#[path = "../shared/tables/mod.rs"]
mod tables;
mod timings;
mod traces;
mod traffic;
mod way;
mod web;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::TcpListenerStream;
use tracing::info_span;

use args::Args;
use demo::Demo;
use figures::Figures;
use observer::Observer;
use otlp::Otlp;
use shop::Shop;
use source::Source;
use switch::SwitchedStore;

/// What ends the program, or one answer, in words for a person.
type Fault = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::from_command_line()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("catalog: {fault}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Fault> {
    let otlp = args.otlp.as_deref().map(Otlp::to).transpose()?;
    traces::install(args.trace, otlp.as_ref())?;
    let figures = Figures::install()?;
    let web = listen("--listen", &args.listen).await?;
    let grpc = listen("--grpc-listen", &args.grpc_listen).await?;
    eprintln!("catalog: preparing the database; the first time this takes some seconds");
    let source = Source::open(args.database_url.as_deref(), args.load_time()).await?;
    let store = SwitchedStore::open(&args.store).await?;
    let demo = Arc::new(Demo::new(Shop::open(source, store)?));
    otlp.iter().for_each(|otlp| otlp.observe(&demo.shop));
    demo.shop.warm_up().await;
    tokio::spawn(traffic::run(Arc::clone(&demo)));
    println!("catalog: http://{} (gRPC: {})", web.local_addr()?, grpc.local_addr()?);
    // It ends with this program.
    let _observer = match &args.observe {
        Some(address) => observe(address, web.local_addr()?).await,
        None => None,
    };

    let over_grpc = tonic::transport::Server::builder()
        .trace_fn(|request| info_span!("request", method = "gRPC", path = request.uri().path()))
        .add_service(grpc::CatalogServer::new(Arc::clone(&demo)))
        .serve_with_incoming(TcpListenerStream::new(grpc));
    tokio::select! {
        ended = axum::serve(web, web::routes(demo, figures)) => ended?,
        ended = over_grpc => ended?,
        signal = tokio::signal::ctrl_c() => signal?,
    }
    match otlp {
        // It waits for the collector.
        Some(otlp) => spawn_blocking(move || otlp.shut_down()).await?,
        None => Ok(()),
    }
}

/// Starts a Prometheus beside this program, which does without if that fails.
async fn observe(address: &str, target: SocketAddr) -> Option<Observer> {
    match Observer::start(address, target).await {
        Ok(observer) => {
            println!("catalog: Prometheus: http://{}", observer.address());
            Some(observer)
        }
        Err(fault) => {
            println!("catalog: no Prometheus: --observe={address}: {fault}");
            None
        }
    }
}

async fn listen(flag: &str, address: &str) -> Result<TcpListener, Fault> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|fault| format!("{flag} {address}: cannot listen there: {fault}").into())
}
