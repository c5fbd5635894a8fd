//! A modest traffic that goes on by itself, the same on all ways, so that there is something to
//! see.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::SeedableRng;
use rand::distr::Distribution;
use rand::rngs::StdRng;
use rand_distr::Zipf;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use crate::demo::Demo;
use crate::source::Search;
use crate::way::Way;

/// The time between two requests of each way: 80 a second.
const PACE: Duration = Duration::from_micros(12_500);
/// Products that are asked for, the first one most often.
const PRODUCTS: u32 = 40;
const WORDS: [&str; 4] = ["lamp", "clock", "bell", "basket"];
/// The most visitors of one way that wait for an answer. More would only queue.
const MOST_VISITORS: usize = 300;

/// What a visitor asks for.
enum Visit {
    Product(u32),
    Search(Search),
    Categories,
}

/// The products that are asked for: with a distance, so that no two are on one page of a search.
pub(crate) fn products() -> impl Iterator<Item = u32> {
    (1..=PRODUCTS).map(sku)
}

/// The searches that are made.
pub(crate) fn searches() -> impl Iterator<Item = Search> {
    WORDS.into_iter().map(|words| Search { words: words.to_owned(), category: None, page: 1 })
}

/// Goes on until the program ends.
pub(crate) async fn run(demo: Arc<Demo>) {
    let mut random = StdRng::seed_from_u64(1);
    let Ok(popularity) = Zipf::new(f64::from(PRODUCTS), 1.0) else { return };
    let visitors = Way::ALL.map(|way| (way, Arc::new(Semaphore::new(MOST_VISITORS))));
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        pace.tick().await;
        let rank = popularity.sample(&mut random) as u32;
        let dice = random.random_range(0..100);
        let word = random.random_range(0..WORDS.len());
        for (way, visitors) in &visitors {
            let Ok(visitor) = Arc::clone(visitors).try_acquire_owned() else { continue };
            let demo = Arc::clone(&demo);
            let way = *way;
            let visit = Visit::by_chance(dice, rank, word);
            tokio::spawn(async move {
                visit.pay(&demo, way).await;
                drop(visitor);
            });
        }
    }
}

impl Visit {
    /// Of 100 visits 90 are to products and 8 are searches.
    fn by_chance(dice: u32, rank: u32, word: usize) -> Self {
        match dice {
            0..90 => Self::Product(sku(rank)),
            90..98 => {
                Self::Search(Search { words: WORDS[word].to_owned(), category: None, page: 1 })
            }
            _ => Self::Categories,
        }
    }

    /// What comes of it is counted where it is answered.
    async fn pay(self, demo: &Demo, way: Way) {
        match self {
            Self::Product(sku) => drop(demo.shop.product(way, sku).await),
            Self::Search(search) => drop(demo.shop.search(way, search).await),
            Self::Categories => drop(demo.shop.categories(way).await),
        }
    }
}

fn sku(rank: u32) -> u32 {
    rank * 1_009
}
