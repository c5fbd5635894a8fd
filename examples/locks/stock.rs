//! Two services sell out of one stock: orders of one article in one warehouse come one at a time,
//! all others at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::Key;
use bellwether_lock::{Lock, LockError, Locks};
use futures_util::future::{join_all, try_join_all};
use tokio::time::sleep;

/// The result of selling.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) sold: u32,
    /// How many pieces were sold that were not there.
    pub(crate) oversold: u32,
}

/// An order of one piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Order {
    warehouse: &'static str,
    sku: u64,
}

/// A stock without anything that keeps two writers apart.
#[derive(Clone)]
struct Stock(Arc<Mutex<Pieces>>);

#[derive(Default)]
struct Pieces {
    left: HashMap<Order, u32>,
    sold: u32,
}

impl Stock {
    fn full() -> Self {
        let left = articles().map(|article| (article, PIECES)).collect();
        Self(Arc::new(Mutex::new(Pieces { left, sold: 0 })))
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether there is a piece, and takes it: two steps, as two statements are.
    async fn deduct(&self, order: Order) {
        let left = self.pieces().left[&order];
        sleep(Duration::from_millis(1)).await;
        if left > 0 {
            let mut pieces = self.pieces();
            pieces.left.insert(order, left - 1);
            pieces.sold += 1;
        }
    }

    fn outcome(&self) -> Outcome {
        let sold = self.pieces().sold;
        Outcome { sold, oversold: sold.saturating_sub(PIECES * articles().count() as u32) }
    }
}

fn articles() -> impl Iterator<Item = Order> {
    let skus = |warehouse| [7, 8].map(|sku| Order { warehouse, sku });
    ["berlin", "porto"].into_iter().flat_map(skus)
}

/// More orders of each article than there are pieces of it.
fn orders() -> impl Iterator<Item = Order> {
    (0..PIECES).flat_map(|_| articles())
}

/// The result without a lock.
pub(crate) async fn unprotected() -> Outcome {
    let stock = Stock::full();
    let both = orders().chain(orders());
    join_all(both.map(|order| stock.deduct(order))).await;
    stock.outcome()
}

/// The result under locks whose keys are made of warehouse and article.
pub(crate) async fn by(services: [Locks<Arc<dyn Lock>>; 2]) -> Result<Outcome, LockError> {
    let stock = Stock::full();
    let sold = async |locks: &Locks<Arc<dyn Lock>>, order: Order| {
        let key = Key::of("stock").with(order.warehouse).with(order.sku);
        locks.run(&key, stock.deduct(order)).await
    };
    try_join_all(services.iter().flat_map(|locks| orders().map(|order| sold(locks, order))))
        .await?;
    Ok(stock.outcome())
}

/// How many there are of each article.
const PIECES: u32 = 10;
