//! Hindrances: which bytes are late, slow, or do not get through for a while.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::link::NodeId;
use crate::host::Millis;
use crate::time_costs::Pace;

/// What holds up the bytes of links that go on.
#[derive(Debug)]
pub(crate) struct Hindrances {
    /// Until when each process is cut off.
    cut_off_until: BTreeMap<usize, Millis>,
    /// Until when a process does not reach a server.
    severed_until: BTreeMap<(usize, NodeId), Millis>,
    /// How fast bytes of a process pass, and until when.
    throttled: BTreeMap<usize, (Pace, Millis)>,
    /// One transmission of so many is delayed, by so many milliseconds at most.
    delays: (u32, Millis),
    pub(super) delayed: DelayedLinks,
}

/// Whose transmissions are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayedLinks {
    All,
    /// Those of half of the links, so that replies overtake each other.
    Slow,
    /// Those of links that subscribe, so that replies overtake messages.
    Subscribed,
}

impl Hindrances {
    pub(super) fn none() -> Self {
        Self {
            cut_off_until: BTreeMap::new(),
            severed_until: BTreeMap::new(),
            throttled: BTreeMap::new(),
            delays: NO_DELAYS,
            delayed: DelayedLinks::All,
        }
    }

    /// All of them end.
    pub(super) fn end(&mut self) {
        self.cut_off_until.clear();
        self.severed_until.clear();
        self.throttled.clear();
        self.delays = NO_DELAYS;
    }

    /// Delays transmissions from now on, of all links or of slow ones.
    pub(crate) fn delay(&mut self, random: &mut SmallRng) {
        let longest = *[3, 30, 300].choose(random).expect("one");
        self.delays = (random.random_range(1..20), longest);
        self.delayed = if random.random() { DelayedLinks::All } else { DelayedLinks::Slow };
    }

    /// Delays messages from now on, and no replies.
    pub(crate) fn delay_messages(&mut self, random: &mut SmallRng) {
        self.delays = (random.random_range(1..3), 600);
        self.delayed = DelayedLinks::Subscribed;
    }

    /// How long a transmission of a link that is delayed takes.
    pub(super) fn draw_delay(&self, random: &mut SmallRng) -> Millis {
        let (one_of, longest) = self.delays;
        if random.random_ratio(1, one_of) { random.random_range(1..=longest) } else { 0 }
    }

    /// A process reaches no server for a while.
    pub(crate) fn cut_off(&mut self, process: usize, until: Millis) {
        self.cut_off_until.insert(process, until);
    }

    /// Processes do not reach these servers until then.
    pub(crate) fn sever(&mut self, pairs: impl IntoIterator<Item = ((usize, NodeId), Millis)>) {
        self.severed_until.extend(pairs);
    }

    /// Until when no bytes of a process get through to a server.
    pub(super) fn held_up_until(&self, process: usize, node: NodeId) -> Millis {
        let cut_off = self.cut_off_until.get(&process).copied().unwrap_or_default();
        let severed = self.severed_until.get(&(process, node)).copied().unwrap_or_default();
        cut_off.max(severed)
    }

    /// The bytes of a process pass at this pace for a while.
    pub(crate) fn throttle(&mut self, process: usize, pace: Pace, until: Millis) {
        self.throttled.insert(process, (pace, until));
    }

    /// How fast the bytes of a process pass. None if they take no time.
    pub(super) fn pace(&self, process: usize, now: Millis) -> Option<Pace> {
        let (pace, until) = self.throttled.get(&process)?;
        (*until > now).then_some(*pace)
    }
}

const NO_DELAYS: (u32, Millis) = (u32::MAX, 1);
