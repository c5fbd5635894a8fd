//! What layers and stores count, and that it adds up.

mod cache;
mod current;
mod events;
mod histograms;
mod loads;
mod logs;
#[cfg(feature = "metrics")]
mod metrics;
mod requests;
mod sums;
mod wakes;

use bellwether::MemoryStore;

use crate::support::store::{Faulty, local, remote};

type Place = fn(&MemoryStore) -> Faulty;

/// A store that is peeked into, and one that has to be asked.
const PLACES: [Place; 2] = [local, remote];
