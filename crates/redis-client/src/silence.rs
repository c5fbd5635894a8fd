//! Silence: whether a server is alive, by the bytes that arrive from it, and not by how long one request
//! has taken.
//!
//! A request may wait behind thousands of others, here and in the server. While bytes arrive, the server
//! works, and the request goes on. Only silence counts: no byte for as long as the *bound*, while a
//! request is under way.
//!
//! ```text
//!  a byte arrives ──► half the bound ──────────────► the bound
//!                     another connection is begun    the node is silent, too:     no answer
//!                     a timeout later at most, if the other one has opened: it replaces this one
//!                                                    bytes arrive over it:        goes on
//! ```
//!
//! - The bound follows the times of replies, as the timer of TCP for retransmissions does (RFC 6298): a
//!   server that works through a burst of a fleet may be silent to one connection for long. It is
//!   [`PATIENCE`] times the longest reply of late, but the timeout at least and [`MOST`] times that at most.
//!   The longest, since replies take longer and longer as a queue grows, and a mean is late. It is
//!   [`TRIPS`] times the shortest reply at least, also after an idle time, if that is below the timeout: the
//!   server may be far away.
//! - A burst comes before its replies. If more than twice as many keys wait as the [window](super::window) has
//!   places, and not because the server has not answered for a while, they are a burst, as after a deployment,
//!   when all of a fleet ask. Then the bound is [`MOST`] times the timeout, until as much time is over
//!   without a burst.
//! - A timer that fires late shows that this process was not running, or had no processor. Then the
//!   replies may be there already, and the server may have no processor either. So the time begins again,
//!   a few times.
//! - A request may be dropped before. If nothing has arrived half a timeout after it was begun, a `PING`
//!   takes its place: callers that all leave early find a dead connection, too.
//! - One reply at least has to arrive within [`MOST`] timeouts. Pushes and single bytes are no replies.
//! - A server that answers another connection, which had nothing before it, has served this one, too: it
//!   serves its connections by turns. If this one is silent all the same, it is dead (half-open).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use bellwether::adapter::micros;

/// When something last happened, as when bytes last arrived.
#[derive(Debug)]
pub(super) struct LastHeard {
    born: Instant,
    /// In ns since `born`.
    at: AtomicU64,
}

impl Default for LastHeard {
    fn default() -> Self {
        Self { born: Instant::now(), at: AtomicU64::new(0) }
    }
}

impl LastHeard {
    pub(super) fn note(&self, now: Instant) {
        let at = now.saturating_duration_since(self.born).as_nanos();
        self.at.store(u64::try_from(at).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When that was. If it never was, when this was made.
    pub(super) fn last(&self) -> Instant {
        self.born + Duration::from_nanos(self.at.load(Ordering::Relaxed))
    }
}

/// The longest reply time of late, in us, and the second since `born` in which it was noted: in the halves
/// of one number. It decays by each shorter reply, and halves with each second. Notes that come together
/// may lose one.
#[derive(Debug)]
pub(super) struct ReplyTimes {
    born: Instant,
    longest: AtomicU64,
    /// Since the last connection was opened, in us.
    shortest: AtomicU64,
    /// In us since `born`, until when the bound is that of a burst.
    burst_until: AtomicU64,
}

impl Default for ReplyTimes {
    fn default() -> Self {
        let [longest, shortest, burst_until] = [0, u64::MAX, 0].map(AtomicU64::new);
        Self { born: Instant::now(), longest, shortest, burst_until }
    }
}

impl ReplyTimes {
    /// A request has its reply after so long.
    pub(super) fn note(&self, took: Duration) {
        let took = micros(took).min(LONGEST_US);
        let longest = self.longest();
        let next = longest.saturating_sub(longest.div_ceil(DECAY)).max(took);
        self.longest.store(next << 32 | self.second(), Ordering::Relaxed);
        self.shortest.fetch_min(took, Ordering::Relaxed);
    }

    /// The first request over a new connection has its reply after so long.
    pub(super) fn connected(&self, took: Duration) {
        self.shortest.store(micros(took), Ordering::Relaxed);
    }

    /// How long the way to the server and back takes, if that is what replies wait for: the shortest time of a
    /// reply. None if replies of late took [`TRIPS`] times that: they wait in a queue, or this process does.
    pub(super) fn trip(&self) -> Duration {
        let shortest = self.shortest.load(Ordering::Relaxed);
        if self.longest() > shortest.saturating_mul(TRIPS) || shortest == u64::MAX {
            return Duration::ZERO;
        }
        Duration::from_micros(shortest)
    }

    fn longest(&self) -> u64 {
        let both = self.longest.load(Ordering::Relaxed);
        let noted_at = both & u64::from(u32::MAX);
        both >> 32 >> self.second().saturating_sub(noted_at).min(31)
    }

    fn second(&self) -> u64 {
        self.born.elapsed().as_secs().min(u64::from(u32::MAX))
    }

    /// So many keys wait for the server, which may have been silent `since` then. If they may all have come
    /// because of that, they say nothing.
    pub(super) fn waits(&self, keys: u32, since: Instant, timeout: Duration) {
        let now = Instant::now();
        if now.saturating_duration_since(since) <= (timeout / BURST).saturating_mul(keys) {
            let until = now + MOST * timeout - self.born;
            self.burst_until.store(micros(until), Ordering::Relaxed);
        }
    }

    /// For how long a connection may be silent.
    pub(super) fn bound(&self, timeout: Duration) -> Duration {
        if micros(self.born.elapsed()) < self.burst_until.load(Ordering::Relaxed) {
            return MOST * timeout;
        }
        self.bound_by_replies(timeout)
    }

    /// The same, but for bursts.
    pub(super) fn bound_by_replies(&self, timeout: Duration) -> Duration {
        let shortest = self.shortest.load(Ordering::Relaxed);
        // One that is not below the timeout is of a server that is too slow.
        let trips = if shortest < micros(timeout) { TRIPS * shortest } else { 0 };
        let expected = Duration::from_micros(trips.max(PATIENCE * self.longest()));
        expected.clamp(timeout, MOST * timeout)
    }
}

/// What is known of a connection while a request waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// Since when the request waits, or bytes last arrived for it.
    pub(super) since: Instant,
    /// When bytes last arrived from the node, over any connection.
    pub(super) node_heard: Instant,
    pub(super) bound: Duration,
    /// Until when one reply at least has to arrive over the connection, whatever bytes do: pushes say nothing
    /// of requests, and a server may answer a few bytes at a time.
    pub(super) reply_until: Instant,
    /// How often the timer was late.
    pub(super) stalls: u32,
}

/// What follows when a timer has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It goes on until then.
    Wait(Instant),
    /// The same, because this process was not running.
    Stalled(Instant),
    /// The same. Another connection is begun, unless that was done.
    Probe(Instant),
    /// The server is down.
    Silent,
}

impl Silence {
    /// When it is judged for the first time.
    pub(super) fn first_look(&self) -> Instant {
        self.since + self.bound / 2
    }

    /// Judges a connection by a timer that was `due` before.
    pub(super) fn judge(&self, due: Instant, now: Instant) -> Judgement {
        let Self { since, node_heard, bound, reply_until, stalls } = *self;
        let (half, end) = (since + bound / 2, since + bound);
        let late = now.saturating_duration_since(due);
        if late > bound / LATE && stalls < MOST_STALLS && now >= half {
            return Judgement::Stalled(now + bound);
        }
        if now >= reply_until {
            return Judgement::Silent;
        }
        if now < half {
            return Judgement::Wait(half.min(reply_until));
        }
        if now < end {
            return Judgement::Probe(end);
        }
        let node_end = node_heard + bound;
        if now < node_end && now < since + LONGEST * bound {
            return Judgement::Probe(node_end);
        }
        Judgement::Silent
    }
}

/// How many times the timeout a bound is at most.
pub(super) const MOST: u32 = 10;

/// How many times the bound a connection may be silent while its node is not.
const LONGEST: u32 = 4;

/// The share of the bound by which a timer is late if the process was not running.
const LATE: u32 = 10;

/// How often a request has patience with its own process.
const MOST_STALLS: u32 = 4;

/// How many times the longest reply of late a connection may be silent.
const PATIENCE: u64 = 8;

/// How many times the shortest reply it may. Half of it, when another connection is begun, is more than one.
const TRIPS: u64 = 3;

/// How many keys a timeout a burst has at least: with the default, 4,000 a second over a connection. While
/// fewer are asked for, a server that has stopped is not taken for one with a burst.
const BURST: u32 = 1000;

/// By which share a shorter reply shortens the longest one.
const DECAY: u64 = 16;

/// An hour, which fits into half of a number.
const LONGEST_US: u64 = 3_600_000_000;

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const TIMEOUT: Duration = Duration::from_micros(250);

    fn ms(ms: u64) -> Duration {
        Duration::from_micros(ms)
    }

    /// A connection that is silent since `born`. The node was heard so many ms after that.
    fn silence(born: Instant, node_heard: u64) -> Silence {
        let reply_until = born + MOST * TIMEOUT;
        Silence {
            since: born,
            node_heard: born + ms(node_heard),
            bound: TIMEOUT,
            reply_until,
            stalls: 0,
        }
    }

    #[test]
    fn a_silent_server_is_judged_after_the_bound_and_asked_over_another_connection_before() {
        let born = Instant::now();
        let it = silence(born, 0);
        assert_eq!(it.first_look(), born + ms(125));
        assert_eq!(it.judge(born + ms(125), born + ms(126)), Judgement::Probe(born + ms(250)));
        assert_eq!(it.judge(born + ms(250), born + ms(251)), Judgement::Silent);
    }

    #[test]
    fn bytes_begin_the_time_again() {
        let born = Instant::now();
        let it = silence(born + ms(100), 100);
        assert_eq!(it.judge(born + ms(125), born + ms(125)), Judgement::Wait(born + ms(225)));
    }

    #[test]
    fn a_node_that_answers_another_connection_is_not_down_for_a_while() {
        let born = Instant::now();
        let at = |heard: u64, now: u64| silence(born, heard).judge(born + ms(now), born + ms(now));
        assert_eq!(at(200, 250), Judgement::Probe(born + ms(450)));
        assert_eq!(at(900, 999), Judgement::Probe(born + ms(1_150)));
        assert_eq!(at(900, 1_000), Judgement::Silent);
    }

    #[test]
    fn bytes_without_a_reply_end_after_ten_timeouts() {
        let born = Instant::now();
        let judged = |now: u64| {
            let it = Silence { since: born + ms(now - 10), ..silence(born, now) };
            it.judge(born + ms(now), born + ms(now))
        };
        assert_eq!(judged(2_450), Judgement::Wait(born + ms(2_500)));
        assert_eq!(judged(2_500), Judgement::Silent);
    }

    #[test]
    fn a_late_timer_gives_a_turn_but_not_for_ever() {
        let born = Instant::now();
        let it = silence(born, 0);
        let judged = |it: Silence| it.judge(born + ms(250), born + ms(350));
        assert_eq!(judged(it), Judgement::Stalled(born + ms(600)));
        assert_eq!(judged(Silence { stalls: MOST_STALLS, ..it }), Judgement::Silent);
        assert_eq!(it.judge(born + ms(250), born + ms(270)), Judgement::Silent);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bound_follows_the_replies_between_the_timeout_and_ten_times_that() {
        let times = ReplyTimes::default();
        assert_eq!(times.bound(TIMEOUT), TIMEOUT);
        (0..100).for_each(|_| times.note(ms(1)));
        assert_eq!(times.bound(TIMEOUT), TIMEOUT);
        times.note(ms(100));
        assert_eq!(times.bound(TIMEOUT), ms(800));
        (0..50).for_each(|_| times.note(ms(1)));
        assert_eq!(times.bound(TIMEOUT), TIMEOUT);
        times.note(Duration::MAX);
        assert_eq!(times.bound(TIMEOUT), MOST * TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_has_the_longest_bound_until_as_much_time_is_over_without_one() {
        let times = ReplyTimes::default();
        advance(ms(50)).await;
        times.waits(40, Instant::now() - ms(10), TIMEOUT);
        assert_eq!(times.bound(TIMEOUT), MOST * TIMEOUT);
        advance(ms(2_499)).await;
        assert_eq!(times.bound(TIMEOUT), MOST * TIMEOUT);
        advance(ms(1)).await;
        assert_eq!(times.bound(TIMEOUT), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_pile_up_behind_a_silent_server_are_no_burst() {
        let times = ReplyTimes::default();
        advance(ms(50)).await;
        times.waits(40, Instant::now() - ms(11), TIMEOUT);
        assert_eq!(times.bound(TIMEOUT), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_time_does_not_make_a_server_that_is_far_away_a_silent_one() {
        let times = ReplyTimes::default();
        times.connected(ms(200));
        advance(Duration::from_secs(60)).await;
        assert_eq!(times.bound(TIMEOUT), ms(600));
        for short_or_too_long in [1, 250] {
            times.connected(ms(short_or_too_long));
            advance(Duration::from_secs(60)).await;
            assert_eq!(times.bound(TIMEOUT), TIMEOUT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn replies_that_wait_in_a_queue_do_not_tell_of_a_long_way() {
        let times = ReplyTimes::default();
        assert_eq!(times.trip(), Duration::ZERO);
        times.connected(ms(60));
        times.note(ms(90));
        assert_eq!(times.trip(), ms(60));
        times.note(ms(181));
        assert_eq!(times.trip(), Duration::ZERO);
        (0..10).for_each(|_| times.note(ms(70)));
        assert_eq!(times.trip(), ms(60));
        times.note(ms(1));
        assert_eq!(times.trip(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_replies_the_bound_is_the_timeout_after_a_few_seconds() {
        let times = ReplyTimes::default();
        times.connected(ms(1));
        times.note(ms(200));
        advance(Duration::from_secs(3)).await;
        assert_eq!(times.bound(TIMEOUT), TIMEOUT);
    }
}
