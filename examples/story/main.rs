//! What each step of caching saves, in counted queries: `cargo run --example story`.
//!
//! It needs no server. Four processes are four caches that share nothing but a store, and time is
//! paused, so two and a half minutes pass in a second, and each run counts the same. The guide `story`
//! explains what is printed.

mod database;
mod fleet;
mod traffic;

use std::time::Duration;

use bellwether::BoxError;
use fleet::{Fleet, Stores};
use traffic::{Counts, Event};

/// The steps, and what came of each.
async fn story() -> Result<String, BoxError> {
    let own = Fleet::new(Stores::Own);
    let shared = Fleet::new(Stores::Shared);
    let stale = shared.stale_while_revalidate(Duration::from_secs(30));
    let early = shared.refresh_early(1.0);
    let steps = [
        ("no cache", Fleet::new(Stores::None), Event::Nothing),
        ("a cache in each process", own, Event::Nothing),
        ("one store for all", shared, Event::Nothing),
        ("… and a stale window", stale, Event::Nothing),
        ("… or early refresh", early, Event::Nothing),
        ("store down, a stale window", stale, Event::Outage),
        ("changes, a cache in each", own, Event::Changes),
        ("changes, one store", shared, Event::Changes),
    ];
    let mut told = line("", ["queries", "waited", "stale", "wrong", "failed"].map(str::to_owned));
    for (step, fleet, event) in steps {
        let Counts { queries, waited, stale, wrong, failed } =
            traffic::run(&fleet.start(), event).await?;
        told += &line(step, [queries, waited, stale, wrong, failed].map(grouped));
    }
    Ok(told)
}

fn line(step: &str, cells: [String; 5]) -> String {
    let cells = cells.map(|cell| format!("{cell:>9}"));
    format!("{step:<27}{}\n", cells.concat())
}

/// A number with a comma before each three digits.
fn grouped(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    print!("{}", story().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_guide_shows_what_the_program_prints() {
        let told = story().await.unwrap();
        assert!(include_str!("../../src/guide/story.md").contains(&told), "{told}");
    }
}
