//! Traces: what happened on the way of a request, from the server through the cache to the database.
//!
//! The loader runs in the span of the request that began the load, so the span `query` of the
//! database stands below the span `request` of the server.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::Fault;

/// What is printed without being asked for.
const WARNINGS: &str = "warn";
/// What happens within a request of a client. The traffic of this program itself is left out.
const REQUESTS: &str = "warn,[request]=info";

/// Prints log messages, and with `--trace` each span at its end. `RUST_LOG` chooses others.
pub(crate) fn install(trace: bool) -> Result<(), Fault> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(chosen) => EnvFilter::try_new(&chosen)
            .map_err(|fault| format!("RUST_LOG={chosen} is no filter: {fault}"))?,
        Err(_) => EnvFilter::new(if trace { REQUESTS } else { WARNINGS }),
    };
    let ends = if trace { FmtSpan::CLOSE } else { FmtSpan::NONE };
    tracing_subscriber::fmt().with_env_filter(filter).with_span_events(ends).try_init()
}
