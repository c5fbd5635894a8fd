//! The SKUs that callers ask for, drawn by Zipf's law from a fixed seed.

use rand::SeedableRng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::StdRng;

use crate::Fault;
use crate::catalog::PRODUCTS;

/// Steps from one cold key to the next. It is coprime to the number of products, so the steps meet
/// each product once.
const STRIDE: u64 = 7_919;

/// Draws the same keys for all ways, and different keys in each round.
pub(crate) struct Popularity {
    keys: u32,
    law: WeightedIndex<f64>,
}

impl Popularity {
    pub(crate) fn new(keys: u32, exponent: f64) -> Result<Self, Fault> {
        let weights = (1..=keys).map(|rank| f64::from(rank).powf(-exponent));
        Ok(Self { keys, law: WeightedIndex::new(weights)? })
    }

    /// One SKU for each caller of the round.
    pub(crate) fn draw(&self, round: u32, callers: usize) -> Vec<u32> {
        let mut random = StdRng::seed_from_u64(u64::from(round));
        (0..callers).map(|_| self.sku(round, self.law.sample(&mut random) as u32 + 1)).collect()
    }

    /// The SKU of a rank, which counts from 1.
    fn sku(&self, round: u32, rank: u32) -> u32 {
        let place = u64::from(round) * u64::from(self.keys) + u64::from(rank);
        (place * STRIDE % u64::from(PRODUCTS)) as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_rounds_share_a_key() {
        let popularity = Popularity::new(1_000, 1.0).unwrap();
        let ranks = (0..100_000).map(|rank| (rank / 1_000, rank % 1_000 + 1));
        let skus: HashSet<u32> = ranks.map(|(round, rank)| popularity.sku(round, rank)).collect();
        assert_eq!(skus.len(), PRODUCTS as usize);
    }

    #[test]
    fn the_first_key_is_asked_for_most() {
        let popularity = Popularity::new(100, 1.0).unwrap();
        let drawn = popularity.draw(3, 10_000);
        let times = |rank| drawn.iter().filter(|sku| **sku == popularity.sku(3, rank)).count();
        assert!(times(1) > times(2) && times(2) > times(10));
    }
}
