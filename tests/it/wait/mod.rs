//! What a loser does: how long it waits, how soon it is told, and what it does then.

mod deadlines;
mod losers;
mod own_loads;
mod patience;

use std::time::Duration;

use bellwether::{CacheErrorKind, Wait};
use bellwether_testkit::caches::{Cached, Settled, kind_of, layer};
use bellwether_testkit::loaders::Loader;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::Layer;

/// A process that waits like this.
fn waiting(store: impl bellwether::Store, wait: Wait, loader: &Loader) -> Cached {
    layer(store).wait(wait).layer(loader.clone())
}

/// What kind of error ended a request, and how long after that moment.
async fn error_after(asked: JoinHandle<Settled>, since: Instant) -> (CacheErrorKind, Duration) {
    let (answer, _) = asked.await.expect("no panic");
    (kind_of(&answer), since.elapsed())
}
