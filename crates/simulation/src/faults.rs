//! Faults: what befalls the network, the server and the processes.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::host::Millis;
use crate::network::{Fate, NetworkState, NodeId};
use crate::server::ModelServer;
use crate::time_costs::Pace;
use crate::topology::Topology;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Transmissions are late.
    Delay,
    /// Messages are late, and replies are not.
    DelayMessages,
    CutRequest,
    LoseReply,
    CutReply,
    HalfOpen,
    /// A link loses what its process sends, and nothing else.
    Deaf,
    /// A link loses what the server sends, and nothing else.
    Mute,
    /// The server stands still.
    Stall,
    /// The server answers a byte a second.
    Trickle,
    /// Few bytes of a process pass in a second.
    Throttle,
    /// A process and the server do not reach each other.
    CutOff,
    /// The server is killed, and starts again without data.
    RestartEmpty,
    /// The same, with data of before.
    RestartOld,
    /// The server's clock is set.
    ClockJump,
    /// A process stands still.
    Pause,
    /// A process runs for a fifth of the time.
    Quota,
    /// A process is killed, and starts again.
    KillProcess,
    /// The server refuses to store more.
    Full,
    ForgetScripts,
    /// The server forgets entries, leases, failures and tags.
    Evict,
    /// A replica becomes the primary behind the address, and open connections are to the former one, which
    /// refuses writes.
    Demote,
    /// A primary is killed, and its replica takes over.
    Failover,
    /// A replica takes over while the old primary goes on.
    SplitBrain,
    SentinelDown,
    /// A sentinel does not hear of failovers.
    StaleSentinel,
    /// Slots get another node at once.
    MoveSlots,
    /// The names of some slots go to another node, one by one.
    MigrateSlots,
}

use FaultKind::{
    ClockJump, CutOff, CutReply, CutRequest, Deaf, Delay, DelayMessages, Demote, Evict, Failover,
    ForgetScripts, Full, HalfOpen, KillProcess, LoseReply, MigrateSlots, MoveSlots, Mute, Pause,
    Quota, RestartEmpty, RestartOld, SentinelDown, SplitBrain, StaleSentinel, Stall, Throttle,
    Trickle,
};

/// The kinds that need neither sentinels nor a cluster, and no costs of time.
const OF_ANY: [FaultKind; 17] = [
    Delay,
    DelayMessages,
    CutRequest,
    LoseReply,
    CutReply,
    HalfOpen,
    Stall,
    CutOff,
    RestartEmpty,
    RestartOld,
    ClockJump,
    Pause,
    KillProcess,
    Full,
    ForgetScripts,
    Evict,
    Demote,
];

impl FaultKind {
    /// The kinds of a run: none, or some.
    pub(crate) fn menu(
        random: &mut SmallRng,
        topology: Topology,
        tags_of_answers: bool,
    ) -> Vec<Self> {
        // Where single links end and no more, no request fails.
        if random.random_ratio(1, 8) {
            return vec![CutRequest, LoseReply, CutReply];
        }
        let count = *[0, 1, 2, 3, 4, 8].choose(random).expect("one");
        let mut menu: Vec<_> = OF_ANY.choose_multiple(random, count).copied().collect();
        // Much that goes wrong needs a message that is late.
        if !menu.is_empty() && random.random() {
            menu.push(*[Delay, DelayMessages].choose(random).expect("one"));
        }
        // Where the clock of the server is set back, nothing may stand still between a load and its
        // commit: this is the gap of fencing.
        if menu.contains(&ClockJump) {
            menu.retain(|it| {
                !matches!(it, Delay | DelayMessages | Stall | CutOff | Pause | HalfOpen)
            });
        }
        let own: &[Self] = match topology {
            Topology::Single => &[],
            Topology::Sentinel => &[Failover, SplitBrain, SentinelDown, StaleSentinel],
            Topology::Cluster(_) => &[Failover, SplitBrain, MoveSlots, MigrateSlots],
        };
        if !own.is_empty() {
            // With sentinels, another server takes over instead. The clocks of servers are those of the others.
            let restarts = topology.is_cluster();
            menu.retain(|it| !matches!(it, RestartEmpty | RestartOld) || restarts);
            // The address of a primary is its own there.
            menu.retain(|it| !matches!(it, ClockJump | Demote));
            menu.extend(own.choose_multiple(random, count.min(4)).copied());
        }
        menu.retain(|it| !tags_of_answers || !it.loses_tags());
        menu
    }

    /// Adds some kinds that matter where servers and processes need time.
    pub(crate) fn add_slow(menu: &mut Vec<Self>, random: &mut SmallRng) {
        const SLOW: [FaultKind; 6] = [Deaf, Mute, Trickle, Throttle, Pause, Quota];
        // Where the clock of the server is set back, nothing may stand still.
        let may_wait = !menu.contains(&ClockJump);
        let count = random.random_range(1..=3);
        menu.extend(SLOW.choose_multiple(random, count).filter(|_| may_wait));
    }

    /// Whether servers may forget a tag. If they do so after an invalidation, a load that began before is
    /// stored: `tags.md` says so of tags that are known only from what was loaded.
    fn loses_tags(self) -> bool {
        matches!(self, RestartEmpty | RestartOld | Evict | Failover | SplitBrain)
    }

    /// Whether it ends links, and does no more than cost a retry.
    pub(crate) fn ends_links_only(self) -> bool {
        matches!(self, CutRequest | LoseReply | CutReply | ForgetScripts | Evict)
    }

    /// Whether it needs more than one invalidation that is kept: a restart loses several, and those that were
    /// dropped are told apart from later ones by the clock of the server.
    pub(crate) fn needs_kept(self) -> bool {
        matches!(self, RestartEmpty | RestartOld | ClockJump)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Delay => "delay",
            DelayMessages => "delayed messages",
            CutRequest => "cut request",
            LoseReply => "lost reply",
            CutReply => "cut reply",
            HalfOpen => "half-open link",
            Deaf => "deaf link",
            Mute => "mute link",
            Stall => "stalled server",
            Trickle => "server that answers a byte a second",
            Throttle => "throttled process",
            CutOff => "cut off process",
            RestartEmpty => "restart without data",
            RestartOld => "restart with old data",
            ClockJump => "clock jump",
            Pause => "paused process",
            Quota => "process with a quota",
            KillProcess => "killed process",
            Full => "full server",
            ForgetScripts => "forgotten scripts",
            Evict => "eviction",
            Demote => "demoted primary",
            Failover => "failover",
            SplitBrain => "failover with a split brain",
            SentinelDown => "stopped sentinel",
            StaleSentinel => "stale sentinel",
            MoveSlots => "moved slots",
            MigrateSlots => "slots that move name by name",
        }
    }

    /// Does what concerns the network and the server only. Returns false if it is about more.
    pub(crate) fn befall(
        self,
        state: &mut NetworkState,
        random: &mut SmallRng,
        processes: usize,
        now: Millis,
    ) -> bool {
        let until = now + random.random_range(1..1_500);
        let primary = state.primaries().choose(random).copied();
        match self {
            Delay => state.hindrances.delay(random),
            DelayMessages => state.hindrances.delay_messages(random),
            CutRequest => state.doom_one(random, Fate::CutRequest),
            LoseReply => state.doom_one(random, Fate::LoseReply),
            CutReply => state.doom_one(random, Fate::CutReply),
            HalfOpen => state.doom_one(random, Fate::HalfOpen),
            Deaf => state.doom_one(random, Fate::Deaf),
            Mute => state.doom_one(random, Fate::Mute),
            Throttle => {
                let bytes = *[20, 100, 1_000].choose(random).expect("one");
                let process = random.random_range(0..processes);
                state.hindrances.throttle(process, Pace { bytes, each: 1 }, until);
            }
            CutOff => state.hindrances.cut_off(random.random_range(0..processes), until),
            ClockJump => {
                let longest = *[500_000, 5_000_000, 1_000_000_000].choose(random).expect("one");
                state.set_clock(random.random_range(-longest..=longest));
            }
            Stall | Trickle | Full | Demote | ForgetScripts | Evict => {
                if let Some(primary) = primary {
                    self.befall_primary(primary, state, random, until);
                }
            }
            RestartEmpty | RestartOld | Pause | Quota | KillProcess | Failover | SplitBrain
            | SentinelDown | StaleSentinel | MoveSlots | MigrateSlots => {
                return false;
            }
        }
        true
    }

    /// Does what a primary suffers without an end of its process.
    fn befall_primary(
        self,
        primary: NodeId,
        state: &mut NetworkState,
        random: &mut SmallRng,
        until: Millis,
    ) {
        match self {
            Stall => state.nodes[primary].stalled_until = until,
            Trickle => state.nodes[primary].trickles_until = until,
            Full => {
                let is_full = random.random();
                state.change(primary, |server| server.set_full(is_full));
            }
            Demote => {
                let leads_there = random.random();
                state.change(primary, |server| server.replace_primary(leads_there));
            }
            ForgetScripts => state.change(primary, ModelServer::forget_scripts),
            _ => {
                let time = state.time(primary);
                state.change(primary, |server| {
                    let names = server.names(time);
                    let names = names.iter().filter(|name| !name.ends_with(b":watermark"));
                    let names: Vec<_> = names.collect();
                    names.choose(random).inspect(|name| server.evict(name));
                });
            }
        }
    }
}
