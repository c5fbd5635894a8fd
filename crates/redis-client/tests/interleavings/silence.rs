use std::time::{Duration, Instant};

/// A server is never silent here.
pub(crate) struct Silence {
    pub(crate) since: Instant,
    #[expect(dead_code, reason = "no timer fires")]
    pub(crate) node_heard: Instant,
    pub(crate) bound: Duration,
    #[expect(dead_code, reason = "no timer fires")]
    pub(crate) reply_until: Instant,
    #[expect(dead_code, reason = "no timer fires")]
    pub(crate) stalls: u32,
}

#[expect(dead_code, reason = "no timer fires")]
pub(crate) enum Judgement {
    Wait(Instant),
    Stalled(Instant),
    Probe(Instant),
    Silent,
}

impl Silence {
    pub(crate) fn first_look(&self) -> Instant {
        self.since
    }

    pub(crate) fn judge(&self, _due: Instant, _now: Instant) -> Judgement {
        Judgement::Silent
    }
}
