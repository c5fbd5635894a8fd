//! OpenTelemetry for bellwether: statistics as instruments, loads in the context of their caller, and links to
//! loads in other processes.
//!
//! The README of this crate has a whole program.
//!
//! # Metrics
//! [`Instruments`] are the metrics of [`bellwether::stats`]. `bellwether_requests_total` of Prometheus is the counter
//! `bellwether.requests` here, `bellwether_load_duration_seconds` is the histogram `bellwether.load.duration` with the
//! unit `s`, and a label is an attribute. So the dashboard and the alert rules of the folder `observability` fit both.
//!
//! # Traces
//! A load runs in a task of its own, and may outlive the request that began it.
//!
//! | your program uses | what to do |
//! |---|---|
//! | `tracing` with `tracing-opentelemetry` | nothing: the [spans](bellwether::trace) of loads and waiters are there |
//! | OpenTelemetry by itself | wrap the function by [`in_current_context`] or [`batch_in_current_context`]; a service of your own attaches a context that its requests carry |
//! | either, in several processes | [`TraceLinks`]: callers that wait for the load of another process are linked to its trace |

mod context;
mod instruments;
mod observed;
mod trace_links;

pub use self::context::{batch_in_current_context, in_current_context};
pub use self::instruments::Instruments;
pub use self::trace_links::TraceLinks;
