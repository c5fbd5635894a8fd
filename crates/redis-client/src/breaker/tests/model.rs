//! Every order of a few operations, compared with a second model of the breaker's rules.

use std::sync::atomic::Ordering;

use bellwether::adapter::locked;
use tokio::time::{Instant, advance};

use super::super::{Breaker, BreakerState, BreakerTicket};
use super::{AFTER, PAUSE, TICK, breaker, fail_one};

/// The model that the breaker is compared with.
struct BreakerModel {
    breaker: Breaker,
    /// The operations under way, and how often the breaker had opened when they began.
    admitted: Vec<(BreakerTicket, u64)>,
    opened: u64,
    /// Failures since the last success, of operations that began since the breaker last opened.
    in_a_row: u32,
    /// No operation may be admitted before.
    closed_until: Option<Instant>,
}

impl BreakerModel {
    fn copy(&self) -> Self {
        let breaker = breaker();
        let healthy = self.breaker.healthy.load(Ordering::Relaxed);
        breaker.healthy.store(healthy, Ordering::Relaxed);
        let BreakerState { opened, failures, ref open } = *locked(&self.breaker.state);
        *locked(&breaker.state) = BreakerState { opened, failures, open: open.clone() };
        Self { breaker, admitted: self.admitted.clone(), ..*self }
    }

    /// Time passes: all that is due later is due sooner.
    fn wait(&mut self) {
        if let Some((probe_at, _)) = &mut locked(&self.breaker.state).open {
            *probe_at -= TICK;
        }
        self.closed_until = self.closed_until.map(|until| until - TICK);
    }

    fn admit(&mut self) {
        let now = Instant::now();
        let is_too_early = self.closed_until.is_some_and(|until| now < until);
        let admitted = self.breaker.admit();
        assert_eq!(admitted.is_err(), is_too_early);
        if let Ok(ticket) = admitted {
            self.admitted.push((ticket, self.opened));
            self.closed_until = self.closed_until.map(|_| now + PAUSE);
        }
    }

    fn end(&mut self, operation: usize, answered: Option<bool>) {
        let (ticket, began) = self.admitted.remove(operation);
        let (counts, was_open) = (began == self.opened, self.closed_until.is_some());
        match answered {
            Some(true) => {
                self.breaker.answered(ticket);
                if counts {
                    (self.closed_until, self.in_a_row) = (None, 0);
                }
            }
            Some(false) => {
                self.in_a_row += u32::from(counts && !was_open);
                let opens = self.in_a_row == AFTER;
                if opens {
                    (self.opened, self.in_a_row) = (self.opened + 1, 0);
                }
                if opens || counts && was_open {
                    self.closed_until = Some(Instant::now() + PAUSE);
                }
                assert_eq!(fail_one(&self.breaker, ticket), opens);
            }
            None => {}
        }
        assert_eq!(self.breaker.is_open(), self.closed_until.is_some());
    }

    /// In every state, an operation after a while is admitted and can close the breaker.
    fn can_recover(mut self) {
        (0..4).for_each(|_| self.wait());
        self.breaker.answered(self.breaker.admit().expect("one is admitted"));
        assert!(!self.breaker.is_open());
    }

    fn explore(&self, depth: u32) -> u64 {
        self.copy().can_recover();
        if depth == 0 {
            return 1;
        }
        let go = |then: &dyn Fn(&mut Self)| {
            let mut next = self.copy();
            then(&mut next);
            next.explore(depth - 1)
        };
        let mut states = 1 + go(&Self::wait);
        if self.admitted.len() < 3 {
            states += go(&Self::admit);
        }
        for operation in 0..self.admitted.len() {
            for answered in [Some(true), Some(false), None] {
                states += go(&|model| model.end(operation, answered));
            }
        }
        states
    }
}

#[tokio::test(start_paused = true)]
async fn every_order_of_a_few_operations_is_what_the_rules_say() {
    advance(TICK * 100).await;
    let (admitted, opened, in_a_row, closed_until) = (Vec::new(), 0, 0, None);
    let breaker = breaker();
    let model = BreakerModel { breaker, admitted, opened, in_a_row, closed_until };
    let states = model.explore(9);
    assert!(states > 100_000, "{states}");
}
