//! Times: what processes and servers need for their work, and how much of that they have had.

use std::collections::VecDeque;

use crate::host::Millis;
use crate::server::{ClientId, ExecutedCommand};

/// A time of the simulated world in microseconds, from its begin.
pub(crate) type Micros = u64;

/// How long processes and servers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeCosts {
    /// A process, for each message that it sends or receives.
    pub(crate) message: Micros,
    /// A server, for a script.
    pub(crate) script: Micros,
    /// A server, for each name of another command.
    pub(crate) name: Micros,
}

impl TimeCosts {
    /// What was measured of Redis 7 and of the client on one core.
    pub(crate) const MEASURED: Self = Self { message: 50, script: 16, name: 2 };

    /// How long a server needs for a command.
    pub(crate) fn of(&self, command: &ExecutedCommand) -> Micros {
        let ExecutedCommand { is_script, names, bytes, .. } = command;
        let words = if *is_script { self.script } else { self.name * *names.max(&1) as Micros };
        words + *bytes as Micros / BYTES_PER_MICRO
    }
}

/// The work of a process or a server, which does one thing after the other. What it has not done is late.
#[derive(Debug, Default)]
pub(crate) struct SerialWork {
    /// How long it has run.
    granted: Micros,
    /// Until when of that it has work.
    used: Micros,
}

impl SerialWork {
    /// It has run for one more tick.
    pub(crate) fn grant(&mut self) {
        self.granted += TICK;
    }

    /// Whether it has time left, of the last tick.
    pub(crate) fn has_time(&self) -> bool {
        self.used < self.granted
    }

    /// Does something now. It may be done after the end of the tick, and then the next thing is later.
    pub(crate) fn spend(&mut self, time: Micros) {
        // Time in which it had nothing to do is over.
        self.used = self.used.max(self.granted.saturating_sub(TICK)) + time;
    }
}

/// The event loop of a server: in each turn, it reads once from each connection that has sent something, executes that,
/// and sends all replies at the end.
#[derive(Debug, Default)]
pub(crate) struct EventLoop {
    pub(crate) work: SerialWork,
    /// The connection whose commands are executed.
    pub(crate) current: Option<ClientId>,
    /// Those that follow in this turn.
    pub(crate) ready: VecDeque<ClientId>,
}

impl EventLoop {
    /// Whether it executes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_none() && self.ready.is_empty()
    }

    /// The server has ended.
    pub(crate) fn end(&mut self) {
        (self.current, self.ready) = (None, VecDeque::new());
    }
}

/// How fast bytes pass: so many in so many milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) bytes: usize,
    pub(crate) each: Millis,
}

const TICK: Micros = 1_000;

/// A server copies and sends about a gigabyte in a second.
const BYTES_PER_MICRO: Micros = 1_000;

/// What a server reads from a connection at once.
pub(crate) const READ_BUFFER: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_not_done_in_a_tick_is_late_and_idle_time_is_lost() {
        let mut work = SerialWork::default();
        assert!(!work.has_time(), "it has not run");
        work.grant();
        work.spend(2_500);
        assert!(!work.has_time());
        work.grant();
        assert!(!work.has_time());
        work.grant();
        assert!(work.has_time());
        (0..5).for_each(|_| work.grant());
        work.spend(999);
        assert!(work.has_time());
        work.spend(1);
        assert!(!work.has_time(), "it did nothing before, and may not do more now");
    }
}
