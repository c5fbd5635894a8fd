//! A program with locks, as Prometheus sees it.

use std::time::Duration;

use bellwether::Key;
use bellwether::metrics::publish;
use bellwether_lock::{LocalLock, Locks};
use tokio::time::sleep;

use crate::exporter::expose;

/// Serves the metrics of a set of locks, of which one is taken again and again. Returns where.
pub(crate) async fn serve() -> String {
    let locks = Locks::builder(LocalLock::new()).name("orders").build().expect("options");
    let taken = locks.clone();
    tokio::spawn(async move {
        loop {
            drop(taken.lock(&Key::of("order").with(1)).await);
            sleep(Duration::from_millis(100)).await;
        }
    });
    expose(move || publish(&locks)).await
}
