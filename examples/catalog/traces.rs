//! Traces: what happened on the way of a request, from the server through the cache to the database.
//!
//! The loader runs in the span of the request that began the load, so the span `query` of the
//! database stands below the span `request` of the server.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;

use crate::Fault;
use crate::otlp::Otlp;

/// What is printed without being asked for.
const WARNINGS: &str = "warn";
/// What happens within a request of a client. The traffic of this program itself is left out.
const REQUESTS: &str = "warn,[request]=info";

/// Prints log messages, and with `--trace` each span at its end. `RUST_LOG` chooses others. With
/// `--otlp`, all spans are sent, too.
pub(crate) fn install(trace: bool, otlp: Option<&Otlp>) -> Result<(), Fault> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(chosen) => EnvFilter::try_new(&chosen)
            .map_err(|fault| format!("RUST_LOG={chosen} is no filter: {fault}"))?,
        Err(_) => EnvFilter::new(if trace { REQUESTS } else { WARNINGS }),
    };
    let ends = if trace { FmtSpan::CLOSE } else { FmtSpan::NONE };
    let printed = tracing_subscriber::fmt::layer().with_span_events(ends).with_filter(filter);
    let sent = otlp.map(Otlp::spans);
    Ok(tracing_subscriber::registry().with(printed).with(sent).try_init()?)
}
