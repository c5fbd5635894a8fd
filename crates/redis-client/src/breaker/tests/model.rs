//! Every order of a few operations, compared with a second model of the breaker's rules.

use std::time::Duration;

use tokio::time::Instant;

use super::super::{BreakerRules, Machine, State, Ticket};

const TICK: Duration = Duration::from_millis(500);
const RULES: BreakerRules =
    BreakerRules { after: 2, pause: TICK.saturating_mul(2), longest: TICK.saturating_mul(3) };

/// The model that the machine is compared with: it keeps the history.
#[derive(Clone)]
struct BreakerModel {
    now: Instant,
    machine: Machine,
    /// The operations under way, and since when.
    admitted: Vec<(Ticket, Instant)>,
    /// Probes that were dropped, and go on.
    resumed: Vec<Ticket>,
    /// Failures since the last success, of operations that began since the breaker last closed.
    in_a_row: u32,
    /// No operation may be admitted before.
    closed_until: Option<Instant>,
}

impl BreakerModel {
    fn admit(&mut self) {
        let is_too_early = self.closed_until.is_some_and(|until| self.now < until);
        let probes = self.admitted.iter().filter(|(ticket, since)| {
            let is_young = self.now < *since + RULES.longest;
            ticket.is_probe && ticket.opened == self.machine.opened && is_young
        });
        let has_probe = self.closed_until.is_some() && probes.count() > 0;
        let admitted = self.machine.admit(self.now);
        assert_eq!(admitted.is_none(), is_too_early || has_probe, "{:?}", self.machine);
        self.admitted.extend(admitted.map(|ticket| (ticket, self.now)));
    }

    fn end(&mut self, ticket: usize, answered: Option<bool>) {
        let (ticket, _) = self.admitted.remove(ticket);
        if answered.is_none() && ticket.is_probe {
            self.resumed.push(ticket);
        }
        self.note(ticket, answered);
    }

    fn note(&mut self, ticket: Ticket, answered: Option<bool>) {
        let counts = ticket.opened == self.machine.opened;
        let was_open = self.closed_until.is_some();
        let has_changed = match answered {
            Some(true) => self.machine.answered(ticket),
            Some(false) => self.machine.failed(ticket, self.now),
            None if ticket.is_probe => self.machine.failed(ticket, self.now),
            None => false,
        };
        let mut expected = false;
        if counts && was_open && ticket.is_probe {
            self.closed_until = Some(self.now + RULES.pause);
            if answered == Some(true) {
                (self.closed_until, self.in_a_row) = (None, 0);
                expected = true;
            }
        } else if counts && !was_open {
            match answered {
                Some(true) => self.in_a_row = 0,
                Some(false) if !ticket.is_probe => self.in_a_row += 1,
                _ => {}
            }
            if self.in_a_row == RULES.after {
                self.closed_until = Some(self.now + RULES.pause);
                expected = true;
            }
        }
        assert_eq!(has_changed, expected, "{:?}", self.machine);
    }

    /// In every state, an operation after a while is admitted and can close the breaker.
    fn can_recover(mut self) {
        self.now += RULES.longest.max(RULES.pause);
        let probe = self.machine.admit(self.now).expect("one is admitted");
        self.machine.answered(probe);
        assert!(matches!(self.machine.state, State::Closed { failures: 0 }));
    }

    fn explore(&self, depth: u32) -> u64 {
        self.clone().can_recover();
        if depth == 0 {
            return 1;
        }
        let go = |then: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            then(&mut next);
            next.explore(depth - 1)
        };
        let mut states = 1 + go(&|model| model.now += TICK);
        if self.admitted.len() < 3 {
            states += go(&Self::admit);
        }
        for ticket in 0..self.admitted.len() {
            for answered in [Some(true), Some(false), None] {
                states += go(&|model| model.end(ticket, answered));
            }
        }
        for resumed in 0..self.resumed.len() {
            for answered in [true, false] {
                states += go(&|model| {
                    let ticket = model.resumed.remove(resumed);
                    model.note(ticket, Some(answered));
                });
            }
        }
        states
    }
}

#[tokio::test(start_paused = true)]
async fn every_order_of_a_few_operations_is_what_the_rules_say() {
    let state = State::Closed { failures: 0 };
    let machine = Machine { rules: RULES, opened: 0, state };
    let now = Instant::now();
    let (admitted, resumed) = (Vec::new(), Vec::new());
    let model = BreakerModel { now, machine, admitted, resumed, in_a_row: 0, closed_until: None };
    assert!(model.explore(10) > 100_000);
}
