//! The span of a caller, and how it is linked to the load that the caller waits for.

use std::sync::Arc;

use tracing::Span;
use tracing::span::Entered;

use super::{CONTEXT, TraceParent};

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
