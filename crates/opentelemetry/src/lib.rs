//! OpenTelemetry for bellwether: statistics as instruments, loads in the context of their caller, and links to
//! loads in other processes.
//!
//! ```text
//! cargo add bellwether bellwether-opentelemetry
//! ```
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::trace::set_trace_context;
//! use bellwether::{Cache, MemoryStore};
//! use bellwether_opentelemetry::{Instruments, TraceLinks};
//! use opentelemetry::global;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(10_000);
//! let items: Cache<String> =
//!     Cache::builder("item", store.clone()).ttl(Duration::from_secs(60)).build();
//!
//! let instruments = Instruments::new(&global::meter("bellwether"));
//! let observed = items.clone();
//! instruments.observe("item", move || observed.stats());
//! instruments.observe("items", move || store.stats());
//!
//! set_trace_context(TraceLinks::default())?;
//! # let item = items.get_or_load(42, async || Ok::<_, std::io::Error>("item 42".to_owned()));
//! # assert_eq!(item.await?, "item 42");
//! # Ok(())
//! # }
//! ```
//!
//! The README of this crate has a whole program that sends metrics and traces by OTLP.
//!
//! # Instruments
//! They are the metrics of [`bellwether::stats`], by the names that [`MetricTable`](bellwether::stats::MetricTable)
//! has: `bellwether.requests`, `bellwether.load.duration`... The module `bellwether::metrics` lists those of caches,
//! `RedisStats` those of a `RedisStore`, and `LockStats` those of locks, by their names in Prometheus:
//!
//! | Prometheus | OpenTelemetry |
//! |---|---|
//! | `bellwether_requests_total` | the counter `bellwether.requests` |
//! | `bellwether_loads_running` | the gauge `bellwether.loads.running` |
//! | `bellwether_load_duration_seconds` | the histogram `bellwether.load.duration` with the unit `s` |
//! | a label | an attribute of the same name |
//!
//! A Prometheus that gets them from a collector, or by OTLP, has the names on the left. So the dashboard and the alert
//! rules of the folder `observability` fit both. Statistics of your own become instruments by a `MetricTable` too.
//!
//! The instruments show snapshots, which are read when the SDK collects: a request costs nothing more than without
//! OpenTelemetry. OpenTelemetry has no observable histogram, so a histogram gets at each collection a value for each
//! one that came since the last: in the same bucket, and together of the same sum.
//!
//! # Traces
//! A load runs in a task of its own, and may outlive the request that began it.
//!
//! | your program uses | what to do |
//! |---|---|
//! | `tracing` with `tracing-opentelemetry` | nothing: the [spans](bellwether::trace) of loads and waiters are there |
//! | OpenTelemetry by itself | wrap the function by [`in_current_context`] or [`batch_in_current_context`], or the service by [`ContextLoader`] |
//! | either, in several processes | [`TraceLinks`]: callers that wait for the load of another process are linked to its trace |

mod context;
mod instruments;
mod observed;
mod trace_links;

pub use self::context::{ContextLoader, InContext, batch_in_current_context, in_current_context};
pub use self::instruments::Instruments;
pub use self::trace_links::TraceLinks;
