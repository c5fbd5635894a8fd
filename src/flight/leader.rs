//! The leader: draws lines, lands answers, and takes its flight down when it goes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::{Chair, Flight, Flights, Listener, Offer, Phase, SeenLease, Slot, lock};
use crate::jitter::jitter;
use crate::key::Key;

/// The one that works for a flight. Dropping it tells whoever still waits to look again.
pub(crate) struct Leader<L> {
    flights: Arc<Flights<L>>,
    key: Key,
    flight: Arc<Flight<L>>,
    listener: Option<Listener>,
}

/// Separates those who had joined when a question was asked from those who came later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line(pub(super) u64);

impl<L> Leader<L> {
    pub(super) fn new(flights: Arc<Flights<L>>, key: Key, flight: Arc<Flight<L>>) -> Self {
        Self { flights, key, flight, listener: None }
    }

    /// From now on somebody else hears what the flight waits for.
    pub(crate) fn heard_by(mut self, listener: Option<Listener>) -> Self {
        self.listener = listener;
        self
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Draws a line. To be drawn right before a question is asked.
    pub(crate) fn line(&self) -> Line {
        let mut state = lock(&self.flight.state);
        state.lines += 1;
        Line(state.lines)
    }

    /// Says that the flight waits for another process, whose lease has so much left.
    pub(crate) fn wait_for_lease(&self, left: Duration) {
        let mut state = lock(&self.flight.state);
        state.lease = Some(SeenLease::seen(state.lease, left));
        drop(state);
        self.enter(Phase::Waiting);
    }

    /// Says what the flight waits for, to those who will not wait for everything.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = lock(&self.flight.state);
        if state.phase != phase {
            state.phase = phase;
            state.since = Instant::now();
        }
        // A question in between is about the same lease.
        if !matches!(phase, Phase::Asking | Phase::Waiting) {
            state.lease = None;
        }
        let wakers = state.take_wakers(|chair| chair.impatient);
        drop(state);
        wake(wakers);
        if let Some(listener) = &self.listener {
            listener(phase);
        }
    }

    /// Lands an answer on those who joined before the line. Says whether others remain.
    pub(crate) fn land(&self, line: Line, answer: &L) -> bool
    where
        L: Clone,
    {
        let answer = Arc::new(answer.clone());
        let mut state = lock(&self.flight.state);
        let mut wakers = Vec::new();
        let mut others_remain = false;
        for (_, chair) in &mut state.chairs {
            if chair.joined < line.0 {
                chair.answer.get_or_insert_with(|| Arc::clone(&answer));
                wakers.extend(chair.waker.take());
            } else {
                others_remain = true;
            }
        }
        drop(state);
        wake(wakers);
        others_remain
    }

    /// Lands an answer on every caller but the one that opened the flight.
    pub(crate) fn land_on_others(&self, answer: &L)
    where
        L: Clone,
    {
        let answer = Arc::new(answer.clone());
        let mut state = lock(&self.flight.state);
        let mut wakers = Vec::new();
        for (_, chair) in state.chairs.iter_mut().filter(|(_, chair)| !chair.opener) {
            chair.answer.get_or_insert_with(|| Arc::clone(&answer));
            wakers.extend(chair.waker.take());
        }
        drop(state);
        wake(wakers);
    }

    /// Lands an answer on everybody who is there.
    pub(crate) fn land_on_all(&self, answer: &L)
    where
        L: Clone,
    {
        self.land(self.line(), answer);
    }

    /// Lands an answer on those who joined after the line and have none.
    pub(crate) fn land_on_late(&self, line: Line, answer: &L)
    where
        L: Clone,
    {
        let answer = Arc::new(answer.clone());
        let mut state = lock(&self.flight.state);
        let mut wakers = Vec::new();
        for (_, chair) in state.chairs.iter_mut().filter(|(_, chair)| chair.joined >= line.0) {
            chair.answer.get_or_insert_with(|| Arc::clone(&answer));
            wakers.extend(chair.waker.take());
        }
        drop(state);
        wake(wakers);
    }

    /// From now on callers look for themselves, and join only if they find nothing that will do.
    pub(crate) fn let_callers_look(&self) {
        lock(&self.flight.state).looks_first = true;
    }

    /// The same, and it goes on though nobody waits for it.
    pub(crate) fn run_in_the_background(&self) {
        let mut state = lock(&self.flight.state);
        state.looks_first = true;
        state.in_background = true;
    }

    /// Lands an answer on whoever opened the flight, if that is still there.
    pub(crate) fn land_on_opener(&self, answer: L) {
        let mut state = lock(&self.flight.state);
        let opener = state.chairs.iter_mut().map(|(_, chair)| chair).find(|chair| chair.opener);
        let (mut left, mut waker) = (Some(Arc::new(answer)), None);
        if let Some(chair) = opener {
            if chair.answer.is_none() {
                chair.answer = left.take();
            }
            waker = chair.waker.take();
        }
        drop(state);
        // After the lock: it may be anybody's type.
        drop(left);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Leaves an answer to those who still wait when it goes, instead of nothing. From then on there
    /// is no such flight, so that who asks again does not join it.
    pub(crate) fn part_with(&self, answer: L) {
        let earlier = lock(&self.flight.state).parting.replace(Arc::new(answer));
        // After the lock: it may be anybody's type.
        drop(earlier);
    }

    /// Offers an answer to those who joined before a line: not as good as what they wait for, but
    /// better than nothing, for as long as it is good.
    pub(crate) fn offer(&self, line: Line, answer: L, good_for: Duration) {
        let offer = Offer { line: line.0, answer, made: Instant::now(), good_for };
        let earlier = lock(&self.flight.state).offer.replace(offer);
        // After the lock: it may be anybody's type.
        drop(earlier);
    }

    /// Waits until a caller is there that has no answer and did not open the flight.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn joined(&self) {
        let is_served = |chair: &Chair<L>| chair.opener || chair.answer.is_some();
        while lock(&self.flight.state).chairs.iter().all(|(_, chair)| is_served(chair)) {
            self.flight.joined.notified().await;
        }
    }

    /// Whether nobody waits right now.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.flight.state).chairs.is_empty()
    }

    /// Waits until nobody waits any more, which matters to no flight in the background.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing; whether anybody waits is looked at anew each time.
    pub(crate) async fn deserted(&self) {
        loop {
            let rung = self.flight.deserted.notified();
            if self.is_deserted() {
                return;
            }
            rung.await;
        }
    }

    fn is_deserted(&self) -> bool {
        let state = lock(&self.flight.state);
        state.chairs.is_empty() && !state.in_background
    }
}

impl<L> Drop for Leader<L> {
    fn drop(&mut self) {
        // Out of the table first: from then on nobody can sit down here, and everybody who has is
        // told below.
        self.flights.remove(
            &self.key.digest(),
            |slot| matches!(slot, Slot::Flight(flight) if Arc::ptr_eq(flight, &self.flight)),
        );
        self.flights.open.fetch_sub(1, Ordering::Relaxed);
        let mut state = lock(&self.flight.state);
        state.closed = true;
        let offer = state.offer.take();
        let mut wakers = state.take_wakers(|_| true);
        drop(state);
        drop(offer);
        // The first to run opens the next flight, with its own request. After a request that broke
        // its load, the next one must not be of the same sender's choosing.
        if wakers.len() > 1 {
            let first = (wakers.len() as f64 * jitter()) as usize % wakers.len();
            wakers.rotate_left(first);
        }
        wake(wakers);
    }
}

impl<L> fmt::Debug for Leader<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leader").field(&self.key).finish()
    }
}

/// To be called when no lock is held: a woken task may run at once, on this very thread.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
