//! What layers and stores count, and that it adds up.

mod events;
mod loads;
mod logs;
mod requests;
mod sums;

use bellwether::MemoryStore;

use crate::support::store::{Faulty, local, remote};

type Place = fn(&MemoryStore) -> Faulty;

/// A store that is peeked into, and one that has to be asked.
const PLACES: [Place; 2] = [local, remote];
