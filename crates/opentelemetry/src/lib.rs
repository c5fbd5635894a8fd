//! The [statistics](bellwether::stats) of bellwether's caches, stores and locks as OpenTelemetry
//! instruments, loaders that run in the OpenTelemetry context of their caller, and links to loads in
//! other processes.
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Cache, MemoryStore};
//! use bellwether_opentelemetry::{Instruments, in_current_context};
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
//! // The query belongs to the trace of the request that makes it.
//! let load = in_current_context(async || Ok::<_, std::io::Error>("item 42".to_owned()));
//! assert_eq!(items.get_or_load(42, load).await?, "item 42");
//! # Ok(())
//! # }
//! ```
//!
//! It is a crate of its own because the API of OpenTelemetry has a breaking release several times a
//! year: each is a new version of this crate, and not of the cache.
//!
//! # Instruments
//! They show snapshots, which are read when the SDK collects. So a request costs nothing more than
//! without OpenTelemetry, and nothing is lost or counted twice if the SDK comes late. Names begin
//! with `bellwether.`. Attributes have few values, which are known before, but for the addresses of
//! servers: keys, tags and texts of errors are never among them. `cache`, `store` and `kind` are the
//! names that you give. Each instrument has the description of the metric with the same figures
//! ([`MetricTable`](bellwether::stats::MetricTable)): also statistics of your own.
//!
//! | instrument | kind | unit | attributes | from |
//! |---|---|---|---|---|
//! | `requests` | counter | `{request}` | `cache`, `outcome`, `detail` | [`RequestStats`](bellwether::stats::RequestStats): `hit_local` is `outcome="hit"`, `detail="local"` |
//! | `loads.started` | counter | `{load}` | `cache`, `why` | [`LoadStartStats`](bellwether::stats::LoadStartStats) |
//! | `loads.ended` | counter | `{load}` | `cache`, `result` | [`LoadEndStats`](bellwether::stats::LoadEndStats) |
//! | `loads.running` | gauge | `{load}` | `cache` | loads that have started and not ended |
//! | `loads.queued` | gauge | `{load}` | `cache` | [`CurrentStats`](bellwether::stats::CurrentStats): uncached loads that wait because as many run as may |
//! | `flights`, `waiters`, `failing_keys` | gauge | `{flight}`, `{request}`, `{key}` | `cache` | the same |
//! | `wakes` | counter | `{wake}` | `cache`, `by` | [`WakeStats`](bellwether::stats::WakeStats) |
//! | `leases` | counter | `{lease}` | `cache`, `event` | [`LeaseStats`](bellwether::stats::LeaseStats) |
//! | `commits` | counter | `{commit}` | `cache`, `result` | [`CommitStats`](bellwether::stats::CommitStats) |
//! | `refreshes` | counter | `{refresh}` | `cache`, `result` | [`RefreshStats`](bellwether::stats::RefreshStats) |
//! | `refused` | counter | `{request}` | `cache`, `limit` | [`LimitStats`](bellwether::stats::LimitStats) |
//! | `invalidations` | counter | `{invalidation}` | `cache`, `event` | [`InvalidationStats`](bellwether::stats::InvalidationStats) |
//! | `load.duration` | histogram | `s` | `cache`, `result` | [`LoadTimeStats`](bellwether::stats::LoadTimeStats): how long loads took |
//! | `wait.duration` | histogram | `s` | `cache`, `place` | [`WaitTimeStats`](bellwether::stats::WaitTimeStats): how long callers waited for the load that answered them, `here` or `elsewhere` |
//! | `flight.callers` | histogram | `{caller}` | `cache` | how many callers each flight had: the size of the stampedes that were held back |
//! | `notice.lag` | histogram | `s` | `cache` | how long ago the load of another process had ended when its waiters here noticed |
//! | `store.entries`, `store.bytes` | gauge | `{entry}`, `By` | `store` | [`MemoryStats`](bellwether::stats::MemoryStats) |
//! | `store.evictions` | counter | `{entry}` | `store` | the same |
//! | `store.operations` | counter | `{operation}` | `store`, `operation` | operations of a `RedisStore` |
//! | `store.errors` | counter | `{error}` | `store`, `error` | those that failed |
//! | `store.operation.duration` | histogram | `s` | `store`, `operation` | how long operations of a `RedisStore` took |
//! | `store.up` | gauge | `{store}` | `store` | 0 while the circuit breaker is open |
//! | `store.connects`, `store.outages`, `store.pushes`, `store.unreadable` | counter | `{connection}`, `{outage}`, `{message}`, `{entry}` | `store` | `RedisStats` |
//! | `store.wake_ups` | gauge | `{way}` | `store`, `by` | 1 for the way in which waiters are woken: `messages` or `polling` |
//! | `store.node.up` | gauge | `{node}` | `store`, `node` | 0 while the circuit breaker of a server is open; the attribute is its address |
//! | `store.node.requests`, `store.node.redirections`, `store.node.connects`, `store.node.outages` | counter | `{request}`, `{request}`, `{connection}`, `{outage}` | `store`, `node` | `RedisNodeStats` |
//! | `store.node.errors` | counter | `{error}` | `store`, `node`, `error` | requests that have failed there |
//! | `store.invalidations.kept`, `store.invalidations.replayed`, `store.invalidations.dropped`, `store.invalidations.reasserted` | counter | `{invalidation}` | `store` | invalidations that have failed or may be lost: `ReplayStats` |
//! | `store.invalidations.pending` | gauge | `{invalidation}` | `store` | those that are to be repeated |
//! | `near.hits`, `near.evictions` | counter | `{lookup}`, `{entry}` | `store` | the near tier |
//! | `near.entries`, `near.bytes` | gauge | `{entry}`, `By` | `store` | the same |
//! | `near.disconnected` | counter | `s` | `store` | time in which no copy could be served |
//! | `lock.waits` | counter | `{attempt}` | `kind`, `result` | attempts to lock that have ended: `LockStats` of `bellwether-lock` |
//! | `lock.wait.duration` | histogram | `s` | `kind` | how long attempts took |
//! | `lock.held` | gauge | `{key}` | `kind` | keys that this process holds |
//! | `lock.lost` | counter | `{hold}` | `kind` | holds that were lost before their holder released them |
//! | `lock.renewals` | counter | `{renewal}` | `kind`, `result` | renewals of a hold: `renewed`, `failed` |
//!
//! OpenTelemetry has no observable histogram. So a histogram gets, at each collection, a value for
//! each one that came since the last: in the same bucket, and together of the same sum. The bounds
//! are [`HistogramStats::SECONDS`](bellwether::stats::HistogramStats::SECONDS) and
//! [`CALLERS`](bellwether::stats::HistogramStats::CALLERS), unless a view has others. Its least and
//! greatest value are good to a bucket.
//!
//! A Prometheus that gets them, from a collector or by OTLP, has them by the names of
//! `bellwether::metrics`: `bellwether.requests` is `bellwether_requests_total`. So the dashboard and
//! the alert rules of the folder `observability` work with both.
//!
//! # Traces
//! A load runs in a task of its own, and may outlive the request that began it. bellwether takes the
//! current span of [`tracing`](https://docs.rs/tracing) along, so a program that uses `tracing` with
//! `tracing-opentelemetry` has the [spans](bellwether::trace) of loads and waiters without more. With
//! [`TraceLinks`], callers that wait for the load of another process are linked to its trace.
//!
//! The current [`Context`](opentelemetry::Context) of a program that uses OpenTelemetry by itself is
//! taken along by [`in_current_context`], by [`batch_in_current_context`], and for a Tower service by
//! [`ContextLoader`].

mod context;
mod instruments;
mod observed;
mod trace_links;

pub use self::context::{ContextLoader, InContext, batch_in_current_context, in_current_context};
pub use self::instruments::Instruments;
pub use self::trace_links::TraceLinks;
