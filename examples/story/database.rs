//! A database with one price in it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// How long a query takes.
const QUERY: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(crate) struct Database {
    price: AtomicUsize,
    queries: AtomicUsize,
}

impl Database {
    /// Reads the price, which may change before the answer arrives.
    pub(crate) async fn query(&self) -> Result<usize, Infallible> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let price = self.price();
        sleep(QUERY).await;
        Ok(price)
    }

    /// Each price is higher than the one before.
    pub(crate) async fn raise(&self) -> Result<(), Infallible> {
        self.price.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The price now, without a query: what answers are judged by.
    pub(crate) fn price(&self) -> usize {
        self.price.load(Ordering::Relaxed)
    }

    pub(crate) fn queries(&self) -> usize {
        self.queries.load(Ordering::Relaxed)
    }
}
