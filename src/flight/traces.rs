//! Which load the waiters of a flight wait for, so that their spans are linked to it.

use tokio::task::try_id;

use super::leader::Leader;
use super::state::lock;
use crate::trace::{CallerSpan, LoadTrace};

impl<L> Leader<L> {
    /// The waiters wait for this load from now on: links their spans to it, and those of later ones
    /// as they join.
    pub(crate) fn wait_for_load(&self, load: LoadTrace) {
        let mut state = lock(&self.flight().state);
        if state.load.as_ref().is_some_and(|known| known.is_same(&load)) {
            return;
        }
        let earlier = state.load.replace(load.clone());
        let waits = state.slots.iter().map(|(_, slot)| slot).filter(|slot| {
            let is_its_own = slot.opener && !load.is_for_the_opener();
            slot.answer.is_none() && !is_its_own && !slot.span.is_none()
        });
        let waiters: Vec<CallerSpan> = waits.map(|slot| slot.span.clone()).collect();
        drop(state);
        // After the lock: these run code of the subscriber.
        drop(earlier);
        waiters.iter().for_each(|waiter| load.link(waiter));
    }

    /// A load of this process runs, until the returned value is dropped. If it goes on without
    /// waiters, it counts as abandoned then.
    pub(crate) fn announce_load(
        &self,
        span: &tracing::Span,
        goes_on: bool,
    ) -> AnnouncedLoad<'_, L> {
        self.set_load(try_id(), goes_on);
        let load = CallerSpan::of(span.clone());
        if !load.is_none() {
            self.wait_for_load(LoadTrace::Local(load));
        }
        AnnouncedLoad(self)
    }

    /// How many callers have joined so far.
    pub(crate) fn callers(&self) -> u64 {
        lock(&self.flight().state).callers
    }
}

/// A load that runs. Dropping it ends its span, unless the loader keeps that.
pub(crate) struct AnnouncedLoad<'a, L>(&'a Leader<L>);

impl<L> Drop for AnnouncedLoad<'_, L> {
    fn drop(&mut self) {
        self.0.set_load(None, false);
        let ended = lock(&self.0.flight().state).load.take();
        // After the lock: it may be the last handle to its span.
        drop(ended);
    }
}
