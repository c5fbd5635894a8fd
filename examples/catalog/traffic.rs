//! A modest traffic that goes on by itself, the same on all ways, so that there is something to see.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::StdRng;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use crate::shop::Shop;
use crate::way::Way;

/// The time between two requests of each way to one process: 27 a second, 80 in three processes.
const PACE: Duration = Duration::from_micros(37_500);
/// Products that are asked for, by Zipf's law: the first one most often.
pub(crate) const PRODUCTS: u32 = 20;
/// The most visitors of one way that wait for an answer. More would only queue.
const MOST_VISITORS: usize = 100;

/// Goes on until the program ends.
pub(crate) async fn run(shop: Arc<Shop>) {
    let mut random = StdRng::from_os_rng();
    let weights = (1..=PRODUCTS).map(|rank| f64::from(rank).recip());
    let Ok(popularity) = WeightedIndex::new(weights) else { return };
    let visitors = Way::ALL.map(|way| (way, Arc::new(Semaphore::new(MOST_VISITORS))));
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        pace.tick().await;
        let sku = popularity.sample(&mut random) as u32 + 1;
        for (way, visitors) in &visitors {
            let Ok(visitor) = Arc::clone(visitors).try_acquire_owned() else { continue };
            let (shop, way) = (Arc::clone(&shop), *way);
            tokio::spawn(async move {
                // What comes of it is counted where it is answered.
                drop(shop.product(way, sku).await);
                drop(visitor);
            });
        }
    }
}
