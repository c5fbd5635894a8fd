//! Random numbers. Each run has a new seed; with `BELLWETHER_FLEET_SEED` it repeats the same
//! operations. Their timing still depends on the machine.

use std::env;
use std::str::FromStr;

use rand::rngs::StdRng;
use rand::{SeedableRng, random};

/// Seeds by `BELLWETHER_FLEET_SEED`, or at random, and prints the seed.
pub fn begin() -> StdRng {
    let seed = from_env("BELLWETHER_FLEET_SEED").unwrap_or_else(random);
    println!("BELLWETHER_FLEET_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// A number that is set for the tests.
pub fn from_env<T: FromStr>(name: &str) -> Option<T> {
    let set = env::var(name).ok()?;
    let number = set.parse().ok();
    assert!(number.is_some(), "{name}: {set:?} is no number");
    number
}
