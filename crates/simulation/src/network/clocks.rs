//! The clocks of the servers.

use super::link::NodeId;
use crate::host::{BEGIN, Millis};

/// One clock for each shard: a replica has that of its primary.
#[derive(Debug)]
pub(super) struct ShardClocks {
    clocks: Vec<ShardClock>,
    set_at: Millis,
}

#[derive(Debug)]
struct ShardClock {
    /// By how much it differs from that of the world, in microseconds.
    error: i64,
    /// The last time that it has shown.
    last: u64,
}

impl ShardClocks {
    pub(super) fn new(errors: &[i64]) -> Self {
        let clocks = errors.iter().map(|error| ShardClock { error: *error, last: 0 });
        Self { clocks: clocks.collect(), set_at: 0 }
    }

    /// Sets all clocks forward or back, by microseconds. Returns whether it does.
    ///
    /// Not twice during a load: if a clock is set back and then forward past the time of the grant again, there is
    /// the gap that `how_it_works.md` says of late writers.
    pub(super) fn set(&mut self, by: i64, now: Millis) -> bool {
        let may_set = now >= self.set_at + LONGEST_COMMIT;
        if may_set {
            self.set_at = now;
            self.clocks.iter_mut().for_each(|clock| clock.error += by);
        }
        may_set
    }

    /// The time of a server in microseconds. Two commands never have the same.
    pub(super) fn time(&mut self, node: NodeId, now: Millis) -> u64 {
        // Primaries come first, and then their replicas.
        let shard = node % self.clocks.len();
        let clock = &mut self.clocks[shard];
        let time = (BEGIN.as_micros() as i64 + 1000 * now as i64 + clock.error) as u64;
        // Within a millisecond, so that a clock that is set back is behind at once.
        clock.last = if clock.last / 1000 == time / 1000 { clock.last + 1 } else { time };
        clock.last
    }
}

/// How long a load and its commit take at most, where the network delays nothing.
const LONGEST_COMMIT: Millis = 500;
