//! The servers of a turn, and the faults that each kind of them can have.

mod cluster;
pub(crate) mod database;
mod sentinel;
mod single;

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::runtime::Handle;

use self::cluster::Cluster;
use self::sentinel::Sentinel;
use self::single::Single;
use crate::args::ServerKind;
use crate::faults::{FaultLog, Loss};
use crate::locked::locked;

/// What a fault needs to be recorded, and to be drawn.
pub(crate) struct Injector<'a> {
    pub(crate) log: &'a Arc<Mutex<FaultLog>>,
    pub(crate) rng: &'a mut StdRng,
}

impl Injector<'_> {
    /// Injects a fault from its begin to its healing.
    pub(crate) fn inject(
        &mut self,
        kind: &str,
        loss: Loss,
        worker: Option<u32>,
        fault: impl FnOnce(&mut StdRng),
    ) {
        locked(self.log).begin(kind, loss, worker);
        fault(self.rng);
        locked(self.log).end();
    }
}

/// Waits for a random time between so many milliseconds.
pub(crate) fn pause(rng: &mut StdRng, least: u64, most: u64) {
    sleep(Duration::from_millis(rng.random_range(least..most)));
}

/// Running servers of one kind.
pub(crate) enum Servers {
    Single(Single),
    Cluster(Cluster),
    Sentinel(Sentinel),
}

impl Servers {
    pub(crate) fn start(kind: ServerKind, runtime: &Handle) -> Self {
        match kind {
            ServerKind::Single => Self::Single(Single::start(runtime)),
            ServerKind::Cluster => Self::Cluster(Cluster::start()),
            ServerKind::Sentinel => Self::Sentinel(Sentinel::start(runtime)),
        }
    }

    /// The address for a worker.
    pub(crate) fn url(&self, worker: u32) -> String {
        match self {
            Self::Single(servers) => servers.url(worker),
            Self::Cluster(servers) => servers.url(),
            Self::Sentinel(servers) => servers.url(),
        }
    }

    /// Which servers are primaries, while all of them run.
    pub(crate) fn primaries(&self) -> Vec<usize> {
        match self {
            Self::Single(_) => Vec::new(),
            Self::Cluster(servers) => servers.primaries(),
            Self::Sentinel(servers) => servers.primaries(),
        }
    }

    /// Injects a fault of these servers, and heals it.
    pub(crate) fn disturb(&mut self, injector: &mut Injector<'_>, runtime: &Handle) {
        match self {
            Self::Single(servers) => servers.disturb(injector, runtime),
            Self::Cluster(servers) => servers.disturb(injector),
            Self::Sentinel(servers) => servers.disturb(injector),
        }
    }
}
