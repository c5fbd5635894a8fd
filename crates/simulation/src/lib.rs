//! The real cache, store and client over a simulated network, Redis, Sentinel and Cluster, from one seed.

#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "only this workspace uses it"
)]

mod burst;
mod campaign;
mod drawn_operation;
mod faults;
mod fleet;
mod frames;
mod history;
mod host;
mod journal;
mod leaks;
mod network;
mod operations;
mod plan;
mod plan_kind;
mod process;
mod promises;
mod recorded;
mod reduced_run;
mod reduction;
mod run;
mod server;
mod slots;
mod time_costs;
mod topology;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

use mimalloc::MiMalloc;

pub use self::campaign::Campaign;
pub use self::plan_kind::PlanKind;
pub use self::reduced_run::ReducedRun;
pub use self::reduction::Reduction;
pub use self::run::{Run, RunOutcome};
pub use self::server::{
    ClientId, ClusterView, ModelServer, Mutations, NamedPrimary, ServerRole, ServerVersion,
    Snapshot,
};
pub use self::world::simulate;

/// Half of the work is to make and drop small values.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
