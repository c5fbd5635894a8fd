//! Every order of a few operations, against the breaker's rules told another way.

use std::time::Duration;

use tokio::time::Instant;

use super::{BreakerRules, Machine, State, Ticket, Turn};

const TICK: Duration = Duration::from_millis(500);
const RULES: BreakerRules =
    BreakerRules { after: 2, pause: TICK.saturating_mul(2), longest: TICK.saturating_mul(3) };

/// What the machine is held against: how it has come to be where it is.
#[derive(Clone)]
struct World {
    now: Instant,
    machine: Machine,
    /// What is under way, and since when.
    passes: Vec<(Ticket, Instant)>,
    /// Failures since the last success, of what began since it closed last.
    in_a_row: u32,
    /// Nothing may be let through until then.
    quiet_until: Option<Instant>,
}

impl World {
    fn admit(&mut self) {
        let is_quiet = self.quiet_until.is_some_and(|until| self.now < until);
        let probes = self.passes.iter().filter(|(pass, since)| {
            let is_young = self.now < *since + RULES.longest;
            pass.is_probe && pass.opened == self.machine.opened && is_young
        });
        let has_probe = self.quiet_until.is_some() && probes.count() > 0;
        let admitted = self.machine.admit(self.now);
        assert_eq!(admitted.is_none(), is_quiet || has_probe, "{:?}", self.machine);
        self.passes.extend(admitted.map(|ticket| (ticket, self.now)));
    }

    fn end(&mut self, pass: usize, answered: Option<bool>) {
        let (ticket, _) = self.passes.remove(pass);
        let counts = ticket.opened == self.machine.opened;
        let was_open = self.quiet_until.is_some();
        let turn = match answered {
            Some(true) => self.machine.answered(ticket),
            Some(false) => self.machine.failed(ticket, self.now),
            None if ticket.is_probe => self.machine.failed(ticket, self.now),
            None => None,
        };
        let mut expected = None;
        if counts && was_open && ticket.is_probe {
            self.quiet_until = Some(self.now + RULES.pause);
            if answered == Some(true) {
                (self.quiet_until, self.in_a_row) = (None, 0);
                expected = Some(Turn::Closed);
            }
        } else if counts && !was_open {
            match answered {
                Some(true) => self.in_a_row = 0,
                Some(false) if !ticket.is_probe => self.in_a_row += 1,
                _ => {}
            }
            if self.in_a_row == RULES.after {
                self.quiet_until = Some(self.now + RULES.pause);
                expected = Some(Turn::Opened);
            }
        }
        assert_eq!(turn, expected, "{:?}", self.machine);
    }

    /// Whatever has happened, the next one after a while is let through, and can close it.
    fn can_recover(mut self) {
        self.now += RULES.longest.max(RULES.pause);
        let probe = self.machine.admit(self.now).expect("one is let through");
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
        let mut states = 1 + go(&|world| world.now += TICK);
        if self.passes.len() < 3 {
            states += go(&Self::admit);
        }
        for pass in 0..self.passes.len() {
            for answered in [Some(true), Some(false), None] {
                states += go(&|world| world.end(pass, answered));
            }
        }
        states
    }
}

#[tokio::test(start_paused = true)]
async fn every_order_of_a_few_operations_is_what_the_rules_say() {
    let state = State::Closed { failures: 0 };
    let machine = Machine { rules: RULES, opened: 0, state };
    let (now, passes) = (Instant::now(), Vec::new());
    let world = World { now, machine, passes, in_a_row: 0, quiet_until: None };
    assert!(world.explore(10) > 100_000);
}
