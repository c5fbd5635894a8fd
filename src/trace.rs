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
//! [kind](crate::Key::kind), unless the program [asks for more](crate::service::ReadThroughLayerBuilder::trace_keys): then
//! the spans have the fields `key.digest` and `key.plain`, too.
//!
//! - **A load is a child of the span in which the request that opened it was polled,** beside the `cache.get`
//!   of that request. So what the loader traces belongs to the trace of that request.
//! - **`cache.get` closes with its request,** also if a load goes on after the deadline of that. A flight
//!   enters no span of a request that has ended.
//! - **A waiter follows from the load that it waits for** ([`tracing::Span::follows_from`], which
//!   OpenTelemetry calls a link): its `cache.get`, or the span in which it is polled if `cache.get` is off and
//!   that is not the parent of the load. Nothing of it is kept with the load, however many callers wait.
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

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use pin_project::pin_project;
use tracing::Span;
use tracing::span::Entered;

use crate::config_error::ConfigError;

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

/// How much of a key is in the spans and log messages of a layer: see
/// [`ReadThroughLayerBuilder::trace_keys`](crate::service::ReadThroughLayerBuilder::trace_keys).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceKeys {
    /// Spans have the [kind](crate::Key::kind) only. Log messages have the kind and the start of the
    /// [digest](crate::Key::digest).
    #[default]
    Kind,
    /// Spans have the digest too, in the field `key.digest`. It tells which spans and log messages are
    /// about one key, and which entry of a store that is. It hides a key that cannot be guessed; that
    /// of a short number can be.
    Digest,
    /// Spans have the digest, and the whole key as readable text in the field `key.plain`. Log messages
    /// have that text as the key. For keys that are harmless in the hands of all that read traces and
    /// logs.
    Plain,
}

/// The trace and the span of a load, in the form of the field `traceparent` (W3C Trace Context,
/// section 3.2): 55 characters, such as `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent(Arc<str>);

impl TraceParent {
    /// Reads the text. `None` unless it is of version `00`, in lower case, and neither of its ids is
    /// zero.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<_> = text.split('-').collect();
        let [version, trace, span, flags] = fields[..] else { return None };
        let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let is_field = |field: &str, length| field.len() == length && field.bytes().all(is_hex);
        let is_id =
            |id: &str, length| is_field(id, length) && id.bytes().any(|digit| digit != b'0');
        let is_valid = version == "00" && is_id(trace, 32) && is_id(span, 16) && is_field(flags, 2);
        is_valid.then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The span of a caller, or none. Clones are the same span: a clone calls no code of the subscriber,
/// so it may be made under a lock. Dropping the last one may call it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerSpan(Option<Arc<Span>>);

impl CallerSpan {
    pub(crate) fn of(span: Span) -> Self {
        Self((!span.is_disabled()).then(|| Arc::new(span)))
    }

    /// The span in which this is called.
    pub(crate) fn current() -> Self {
        Self::of(Span::current())
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The span itself.
    pub(crate) fn span(&self) -> Span {
        self.0.as_deref().cloned().unwrap_or_else(Span::none)
    }

    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        self.0.as_deref().map(Span::enter)
    }

    /// The same, for as long as its caller waits.
    pub(crate) fn while_it_waits(&self) -> WaitingSpan {
        WaitingSpan(self.0.as_ref().map_or_else(Weak::new, Arc::downgrade))
    }

    /// This span, or none if it is that one.
    pub(crate) fn other_than(self, span: &WaitingSpan) -> Self {
        Self(self.0.filter(|ours| Arc::as_ptr(ours) != span.0.as_ptr()))
    }

    /// Lets this span follow from another one.
    pub(crate) fn follows(&self, span: &Span) {
        if let Some(ours) = self.0.as_deref() {
            ours.follows_from(span);
        }
    }

    /// Lets a span follow from this one.
    pub(crate) fn precedes(&self, span: &Span) {
        if let Some(ours) = self.0.as_deref() {
            span.follows_from(ours);
        }
    }

    /// The trace context of this span, for other processes.
    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        let context = CONTEXT.get()?;
        let _entered = self.enter();
        context.current()
    }
}

/// The span of a caller, which closes when the caller has its answer or leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingSpan(Weak<Span>);

impl WaitingSpan {
    /// The span, or none if its caller waits no more.
    pub(crate) fn get(&self) -> CallerSpan {
        CallerSpan(self.0.upgrade())
    }

    /// Polls a future in the span, as long as its caller waits.
    pub(crate) fn instrument<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        InWaitingSpan { future, span: self }
    }
}

#[pin_project]
struct InWaitingSpan<F> {
    #[pin]
    future: F,
    span: WaitingSpan,
}

impl<F: Future> Future for InWaitingSpan<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let span = this.span.get();
        let _entered = span.enter();
        this.future.poll(cx)
    }
}

/// The trace of a load.
#[derive(Clone, Debug)]
pub(crate) enum LoadTrace {
    /// Of a load in this process: its span.
    Local(CallerSpan),
    /// Of a load in another process.
    Remote(TraceParent),
}

impl LoadTrace {
    /// Whether the spans of waiters are linked to this load already, if they are to that one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Remote(ours), Self::Remote(theirs)) if ours == theirs)
    }

    /// Whether the caller that opened the flight waits for it, too. The span of a load in this
    /// process is a child of the span of that caller.
    pub(crate) fn is_for_the_opener(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Links the span of a waiter to it. No lock may be held: it calls code of the program.
    pub(crate) fn link(&self, waiter: &CallerSpan) {
        let Some(span) = waiter.0.as_deref() else { return };
        match (self, CONTEXT.get()) {
            (Self::Local(load), _) => load.precedes(span),
            (Self::Remote(load), Some(context)) => span.in_scope(|| context.link(load)),
            (Self::Remote(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_kept_as_it_is() {
        assert_eq!(TraceParent::parse(GOOD).map(|it| it.to_string()).as_deref(), Some(GOOD));
        assert_eq!(GOOD.len(), 55);
    }

    #[test]
    fn anything_else_is_none() {
        let bad = [
            "".to_owned(),
            "----".to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD}0"),
            GOOD[..54].to_owned(),
            GOOD.to_uppercase(),
            GOOD.replace("00-", "ff-"),
            GOOD.replace('7', "g"),
            GOOD.replace('7', "\u{fc}"),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
        ];
        for text in bad {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
