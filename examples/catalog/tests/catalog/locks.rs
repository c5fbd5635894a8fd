//! A program with locks, as Prometheus sees it.

use std::time::Duration;

use bellwether::Key;
use bellwether::metrics::{describe, publish};
use bellwether_lock::{LocalLock, LockStats, Locks};
use tokio::time::sleep;

use crate::exporter::expose;

/// Serves the metrics of a set of locks, of which one is taken again and again. Returns where.
pub(crate) async fn serve() -> String {
    let locks = Locks::new(LocalLock::new());
    let taken = locks.clone();
    tokio::spawn(async move {
        loop {
            drop(taken.lock(&Key::of("order").with(1)).await);
            sleep(Duration::from_millis(100)).await;
        }
    });
    expose(move || {
        describe::<LockStats>();
        publish("orders", &locks.stats());
    })
    .await
}
