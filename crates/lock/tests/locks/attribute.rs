//! Functions that run under a lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use bellwether::{CacheKey, Key};
use bellwether_lock::{LocalLock, LockErrorKind, LockStatus, LockWait, LockedError, Locks, locked};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::support::{MS, Remote, SECOND, locks};

/// A stock that reads, gives way and writes.
#[derive(Debug)]
struct Stock {
    left: AtomicU32,
    locks: Locks<Remote<LocalLock>>,
}

#[derive(Debug, PartialEq)]
struct SoldOut;

impl std::fmt::Display for SoldOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sold out")
    }
}

impl std::error::Error for SoldOut {}

impl Stock {
    fn of(left: u32) -> Self {
        Self { left: AtomicU32::new(left), locks: locks(LocalLock::new()) }
    }

    async fn take(&self, count: u32) -> Result<u32, SoldOut> {
        let read = self.left.load(Ordering::SeqCst);
        sleep(MS * 10).await;
        let left = read.checked_sub(count).ok_or(SoldOut)?;
        self.left.store(left, Ordering::SeqCst);
        Ok(left)
    }

    #[locked(locks = self.locks.clone().wait(LockWait::at_most(SECOND)), key = Key::of("stock").with(sku))]
    async fn take_locked(&self, sku: u64, count: u32) -> Result<u32, SoldOut> {
        assert_eq!(LockStatus::current().unwrap().key(), &Key::of("stock").with(sku));
        self.take(count).await
    }

    #[locked(locks = self.locks, key = Key::of("stock").with(&name))]
    async fn owned(self: Arc<Self>, name: String) -> std::io::Result<String> {
        Ok(name)
    }
}

/// An item of some warehouse.
struct Item<'a> {
    warehouse: &'a str,
    sku: u64,
}

#[locked(locks = stock.locks, key = Key::of("stock").with(item.warehouse).with(item.sku))]
async fn deduct(stock: &Stock, item: &Item<'_>, mut count: u32) -> Result<u32, SoldOut> {
    count += u32::from(item.sku == 0);
    let left = stock.take(count).await?;
    Ok(left)
}

/// What a function of a generic type names that has no `self`.
struct Counter<T>(T);

impl<T: Default + Into<u64>> Counter<T> {
    fn start() -> u64 {
        T::default().into()
    }

    #[deny(unused)]
    #[locked(locks = stock.locks, key = Key::of("counter").with(sku))]
    async fn counted(stock: &Stock, sku: u64, mut given: T) -> Result<u64, SoldOut> {
        let given: T = std::mem::take(&mut given);
        Ok(Self::start() + given.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_of_a_generic_type_names_what_surrounds_it() {
    assert_eq!(Counter::counted(&Stock::of(1), 42, 7_u32).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_key_are_made_one_after_the_other() {
    let stock = Stock::of(100);
    let item = Item { warehouse: "berlin", sku: 42 };
    let calls = join_all((0..100).map(|_| deduct(&stock, &item, 1))).await;
    assert!(calls.iter().all(Result::is_ok));
    assert_eq!(stock.left.load(Ordering::SeqCst), 0);
    let error = deduct(&stock, &item, 1).await.unwrap_err();
    assert_eq!(error.inner(), Some(&SoldOut));
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_keys_do_not_wait() {
    let stock = Stock::of(100);
    let began = Instant::now();
    let items =
        [("berlin", 1), ("berlin", 2), ("bonn", 1)].map(|(warehouse, sku)| Item { warehouse, sku });
    join_all(items.iter().map(|item| deduct(&stock, item, 1))).await;
    assert_eq!(began.elapsed(), MS * 10);
}

#[tokio::test(start_paused = true)]
async fn a_method_waits_for_as_long_as_its_attribute_says() {
    let stock = Arc::new(Stock::of(10));
    assert_eq!(stock.take_locked(7, 3).await.unwrap(), 7);
    let _held = stock.locks.lock(&Key::of("stock").with(7)).await.unwrap();
    let began = Instant::now();
    let error = stock.take_locked(7, 3).await.unwrap_err();
    let LockedError::Lock(error) = error else { panic!("{error:?}") };
    assert_eq!((error.kind(), began.elapsed()), (LockErrorKind::TimedOut, SECOND));
    assert_eq!(Arc::clone(&stock).owned("name".to_owned()).await.unwrap(), "name");
}

static LOCKS: LazyLock<Locks<Remote<LocalLock>>> = LazyLock::new(|| locks(LocalLock::new()));

#[locked(locks = LOCKS, key = Key::of("part").with(part))]
async fn generic<P: CacheKey + Clone>(part: &P) -> Result<P, SoldOut> {
    Ok(part.clone())
}

#[tokio::test]
async fn locks_can_be_static_and_functions_generic() {
    assert_eq!(generic(&1).await.unwrap(), 1);
    assert_eq!(generic(&"one").await.unwrap(), "one");
}

#[test]
fn the_future_can_be_spawned() {
    fn can_be_spawned<F: Future + Send>(_: F) {}
    let stock = Stock::of(1);
    can_be_spawned(deduct(&stock, &Item { warehouse: "berlin", sku: 42 }, 1));
}
