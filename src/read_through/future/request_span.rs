//! The span of a request that asks the store or waits.

use tokio::time::Instant;
use tracing::field;

use crate::key::Key;
use crate::stats::{RequestEvent, RequestStats, Statistics};
use crate::trace::CallerSpan;

/// The span in which a request waits: its own, or that of its caller if its own is off.
#[derive(Debug, Default)]
pub(super) struct RequestSpan {
    caller: CallerSpan,
    is_own: bool,
}

impl RequestSpan {
    /// Begins the span of a request, as a child of the current one.
    pub(super) fn begin(statistics: &Statistics, key: &Key) -> Self {
        let span = tracing::debug_span!(
            target: "bellwether::load",
            "cache.get",
            cache = &**statistics.name(),
            key.kind = key.kind(),
            key.digest = field::Empty,
            key.plain = field::Empty,
            outcome = field::Empty,
            detail = field::Empty,
            waited_ms = field::Empty,
        );
        statistics.note_key(&span, key);
        let own = CallerSpan::of(span);
        match own.is_none() {
            true => Self { caller: CallerSpan::current(), is_own: false },
            false => Self { caller: own, is_own: true },
        }
    }

    /// What is linked to the load, and what the load is a child of.
    pub(super) fn caller(&self) -> &CallerSpan {
        &self.caller
    }

    /// Its own span, to poll in it. Its caller's is entered by the caller.
    pub(super) fn own(&self) -> CallerSpan {
        if self.is_own { self.caller.clone() } else { CallerSpan::default() }
    }

    /// Notes how the request that began then has ended.
    pub(super) fn end(&self, event: RequestEvent, begun: Instant) {
        if self.is_own {
            let field = RequestStats::FIELDS[event as usize];
            let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
            let span = self.caller.span();
            span.record("outcome", outcome).record("detail", detail);
            let waited = begun.elapsed().as_millis();
            span.record("waited_ms", u64::try_from(waited).unwrap_or(u64::MAX));
        }
    }
}
