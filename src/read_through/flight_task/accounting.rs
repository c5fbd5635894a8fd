//! Accounting: what the events of a flight say to the statistics.

use std::fmt::Display;

use tower::Service;

use super::{FlightHold, FlightTask, TaskEvent};
use crate::codec::Codec;
use crate::read_through::outcome::Outcome;
use crate::read_through::step::{LeaseHold, LoadEnd, Meanwhile};
use crate::stats::{CommitEvent, LeaseEvent, LoadReason, RefreshEvent, WakeEvent};

impl<S, Req, C> FlightTask<S, Req, C>
where
    S: Service<Req>,
    S::Error: Send + Sync + 'static,
    C: Codec<S::Response>,
{
    /// Counts an event of the protocol.
    pub(super) fn count(&mut self, event: &TaskEvent) {
        self.count_pause(event);
        let statistics = &self.core.statistics;
        match event {
            TaskEvent::Found { due: Some(_), .. } => self.background = Some(LoadReason::Early),
            TaskEvent::Busy { meanwhile, .. } => {
                statistics.lease(LeaseEvent::Busy);
                self.note_meanwhile(meanwhile);
            }
            TaskEvent::Granted { meanwhile, .. } => {
                statistics.lease(LeaseEvent::Granted);
                self.note_meanwhile(meanwhile);
            }
            TaskEvent::LoadEnded { end, .. } if self.background.is_some() => match end {
                LoadEnd::Failed { outcome, .. } => {
                    statistics.refresh_failed(self.leader.key(), error(outcome));
                }
                LoadEnd::Value { .. }
                | LoadEnd::PrivateKey { .. }
                | LoadEnd::PrivateOnce { .. } => {
                    statistics.refresh(RefreshEvent::Succeeded);
                }
                LoadEnd::Abandoned | LoadEnd::NoRequest => {}
            },
            TaskEvent::Stored { .. } => statistics.commit(CommitEvent::Stored),
            TaskEvent::Superseded { .. } => statistics.superseded(self.leader.key()),
            TaskEvent::CommitFailed { .. } => statistics.commit(CommitEvent::Unacknowledged),
            _ => {}
        }
    }

    /// Counts a wait that a pause ended, when the store has said what became of the load.
    fn count_pause(&mut self, event: &TaskEvent) {
        let is_of_the_wait = matches!(event, TaskEvent::Waited { .. });
        if is_of_the_wait || !std::mem::take(&mut self.has_paused) {
            return;
        }
        let has_ended = matches!(
            event,
            TaskEvent::Found { .. }
                | TaskEvent::Told { .. }
                | TaskEvent::PrivateKey { .. }
                | TaskEvent::PrivateOnce { .. }
                | TaskEvent::Uncacheable { .. }
                | TaskEvent::Unreadable { .. }
                | TaskEvent::InCooldown { .. }
                | TaskEvent::InCooldownStale { .. }
        );
        let watch = &self.watch;
        let is_reported = !watch.is_silent() || watch.is_interrupted();
        let wake = match has_ended && is_reported {
            // It came just after the pause.
            true if watch.has_changed() => WakeEvent::Push,
            true => WakeEvent::MissedPush,
            false => WakeEvent::Pause,
        };
        self.core.statistics.wake(wake);
    }

    /// With a stale answer for every caller, the load is for none.
    fn note_meanwhile<O>(&mut self, meanwhile: &Meanwhile<O>) {
        if matches!(meanwhile, Meanwhile::Give(_)) {
            self.background.get_or_insert(LoadReason::Revalidation);
        }
    }

    /// Why it loads.
    pub(super) fn load_reason(&self, hold: &FlightHold) -> LoadReason {
        match (hold, self.background) {
            (LeaseHold::Nothing, _) => LoadReason::NotKept,
            (LeaseHold::StoreDown | LeaseHold::Unacknowledged, _) => LoadReason::StoreFailed,
            (LeaseHold::Lease(_), Some(background)) => background,
            (LeaseHold::Lease(_), None) if self.purpose.is_forced() => LoadReason::Forced,
            (LeaseHold::Lease(_), None) => LoadReason::Miss,
        }
    }
}

/// What a failed load says of itself.
fn error(outcome: &Outcome) -> &dyn Display {
    match outcome {
        Outcome::LoadFailed(error) => error,
        Outcome::Failed(error) => error,
        _ => &"the answer counts as a failure",
    }
}
