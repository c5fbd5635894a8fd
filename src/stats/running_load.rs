//! The recorder of loads: a load that has started, and its span.

use std::sync::Arc;
use std::thread;

use tokio::time::Instant;
use tracing::{Span, field};

use super::cache_stats::{
    LoadEndStats, LoadReason, LoadResult, LoadStartStats, LoadStats, LoadTimeStats,
};
use super::counters::{CountedEvent, Counters};
use super::histogram::TimeHistograms;
use super::layer_log::LOAD;
use crate::key::Key;
use crate::trace::CallerSpan;

/// Where a layer counts its loads.
#[derive(Debug, Default)]
pub(super) struct LoadCounters {
    started: Counters<{ LoadReason::COUNT }>,
    ended: Counters<{ LoadResult::COUNT }>,
    times: TimeHistograms<{ LoadResult::COUNT }>,
}

impl LoadCounters {
    /// A load of this cache starts.
    pub(super) fn begin(
        self: &Arc<Self>,
        cache: &str,
        key: Option<&Key>,
        why: LoadReason,
        trigger: &CallerSpan,
    ) -> RunningLoad {
        self.started.add(why as usize);
        let span = span(cache, key, why, trigger);
        let counters = Arc::clone(self);
        RunningLoad { counters, began: Instant::now(), span, result: None, is_not_found: false }
    }

    pub(super) fn read(&self) -> (LoadStats, LoadTimeStats) {
        // In this order: no load is seen to end that is not seen to start.
        let ended = LoadEndStats::read(|event| self.ended.read(event));
        let started = LoadStartStats::read(|event| self.started.read(event));
        let times = LoadTimeStats::read(|result| self.times.read(result));
        (LoadStats { started, ended }, times)
    }
}

/// A load that has started. If it is dropped without a result, it counts as cancelled, or as
/// panicked if a panic drops it.
#[derive(Debug)]
pub(crate) struct RunningLoad {
    counters: Arc<LoadCounters>,
    began: Instant,
    span: Span,
    result: Option<LoadResult>,
    is_not_found: bool,
}

impl RunningLoad {
    /// The span in which the loader runs.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes that the answer is that there is none.
    pub(crate) fn note_not_found(&mut self) {
        self.is_not_found = true;
    }

    /// The load has ended.
    pub(crate) fn end(mut self, result: LoadResult) {
        self.result = Some(match result {
            LoadResult::Succeeded if self.is_not_found => LoadResult::NotFound,
            result => result,
        });
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        let result = self.result.unwrap_or_else(|| match thread::panicking() {
            true => LoadResult::Panicked,
            false => LoadResult::Cancelled,
        });
        self.span.record("result", result.field());
        self.counters.times.note(result as usize, self.began.elapsed());
        self.counters.ended.add(result as usize);
    }
}

/// The span of a load: a child of the current one. A load in the background outlives the request
/// that triggered it, so it has no parent, and follows from that request.
fn span(cache: &str, key: Option<&Key>, why: LoadReason, trigger: &CallerSpan) -> Span {
    let kind = key.map(Key::kind);
    let (reason, result) = (why.field(), field::Empty);
    if !matches!(why, LoadReason::Revalidation | LoadReason::Early) {
        return tracing::info_span!(target: LOAD, "cache.load", cache, key.kind = kind, key.digest = field::Empty, key.plain = field::Empty, why = reason, result);
    }
    let span = tracing::info_span!(target: LOAD, parent: None, "cache.load", cache, key.kind = kind, key.digest = field::Empty, key.plain = field::Empty, why = reason, result);
    trigger.precedes(&span);
    span
}
