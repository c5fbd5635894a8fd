//! Waiters: how long they wait, how soon they are notified, and what they do then.

mod deadlines;
mod own_loads;
mod patience;
mod waiters;

use std::time::Duration;

use bellwether::{CacheErrorKind, Wait};
use bellwether_testkit::caches::{Answered, Cached, kind_of, layer};
use bellwether_testkit::loaders::Loader;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::Layer;

/// A process that waits like this.
fn waiting(store: impl bellwether::store::Store, wait: Wait, loader: &Loader) -> Cached {
    layer(store).wait(wait).build().unwrap().layer(loader.clone())
}

/// The kind of error that ended a request, and how long after that moment.
async fn error_after(asked: JoinHandle<Answered>, since: Instant) -> (CacheErrorKind, Duration) {
    let (answer, _) = asked.await.expect("no panic");
    (kind_of(&answer), since.elapsed())
}
