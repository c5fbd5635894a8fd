//! Traces: the spans of requests and loads, and the links between them.
//!
//! Spans go to [`tracing`]. They have the target `bellwether::load`:
//!
//! | span | level | fields | when |
//! |---|---|---|---|
//! | `cache.get` | debug | `cache`, `key.kind`, `outcome`, `detail`, `waited_ms` | a request that has to ask the store or to wait; not a request that an entry of this process answers at once |
//! | `cache.load` | info | `cache`, `key.kind`, `why`, `result` | a call of the loader, from its begin to its end |
//!
//! `outcome` and `detail` are the labels of `requests_total`, `why` and `result` those of
//! `loads_started_total` and `loads_ended_total`. Nothing else of a key is in a span than its
//! [kind](crate::Key::kind), unless the program [asks for more](crate::ReadThroughLayer::trace_keys): then
//! the spans have the fields `key.digest` and `key.plain`, too.
//!
//! - **A load is a child of the request that opened it:** of its `cache.get`, or of the span in which
//!   it was polled if `cache.get` is off. So what the loader traces belongs to the trace of that
//!   request.
//! - **A waiter follows from the load that it waits for** ([`tracing::Span::follows_from`], which
//!   OpenTelemetry calls a link). That goes for the span of the waiter, as above. Nothing of it is
//!   kept with the load, however many callers wait.
//! - **A load in the background has no parent,** because it outlives the request that triggered it,
//!   and follows from that request.
//!
//! # Across processes
//! `tracing` knows no other process. A [`TraceContext`] tells this crate the trace that it runs in,
//! and adds links to traces of other processes. Set one with [`set_trace_context`], and leaders leave
//! their trace with the lease. Waiters in other processes then link to it, and to a request that was
//! answered elsewhere one finds the load that answered it. Without one, nothing is sent. The crate
//! `bellwether-opentelemetry` has one, `TraceLinks`.
//!
//! ```
//! use bellwether::trace::{TraceContext, TraceParent, set_trace_context};
//!
//! /// Stands for a library that knows the current trace.
//! struct Tracer;
//!
//! impl TraceContext for Tracer {
//!     fn current(&self) -> Option<TraceParent> {
//!         TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
//!     }
//!
//!     fn link(&self, load: &TraceParent) {
//!         println!("the load that this caller waits for: {load}");
//!     }
//! }
//!
//! set_trace_context(Tracer)?;
//! # Ok::<_, bellwether::ConfigError>(())
//! ```

mod caller_span;
mod trace_keys;
mod trace_parent;

use std::sync::OnceLock;

use crate::config_error::ConfigError;

pub(crate) use self::caller_span::{CallerSpan, LoadTrace};
pub use self::trace_keys::TraceKeys;
pub use self::trace_parent::TraceParent;

/// What connects the spans of this process with those of others. See the [module page](self).
pub trait TraceContext: Send + Sync + 'static {
    /// The trace context of the current span. It is asked for once per flight, when that begins, and
    /// never for a hit. `None` if there is no trace, or if it is not to be told to other processes.
    fn current(&self) -> Option<TraceParent>;

    /// Links the current span, which waits, to a load in another process.
    fn link(&self, load: &TraceParent);
}

/// Sets the trace context of this process, for all layers. It can be set once.
///
/// # Errors
/// If one was set before. That one stays.
pub fn set_trace_context(context: impl TraceContext) -> Result<(), ConfigError> {
    let reason = "one was set before: a process has one for all its layers";
    let refused = |_| ConfigError::NoEffect { setting: "trace context", reason };
    CONTEXT.set(Box::new(context)).map_err(refused)
}

static CONTEXT: OnceLock<Box<dyn TraceContext>> = OnceLock::new();
