//! `#[locked]`: a function that runs under a lock.

use std::future::Future;

/// Runs an `async fn` under a lock, whose key is made of the arguments.
///
/// ```
/// use std::sync::LazyLock;
///
/// use bellwether::Key;
/// use bellwether_lock::{LocalLock, LockedError, Locks};
/// use bellwether_lock::locked;
/// # struct Pool;
/// # #[derive(Debug)]
/// # struct SoldOut;
/// # impl std::fmt::Display for SoldOut {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("sold out") }
/// # }
/// # impl std::error::Error for SoldOut {}
/// # impl Pool {
/// #     async fn count(&self, _: &str, _: u64) -> Result<u32, SoldOut> { Ok(5) }
/// #     async fn set(&self, _: &str, _: u64, _: u32) -> Result<(), SoldOut> { Ok(()) }
/// # }
///
/// static LOCKS: LazyLock<Locks<LocalLock>> = LazyLock::new(|| Locks::new(LocalLock::new()));
///
/// #[locked(locks = LOCKS, key = Key::of("stock").with(warehouse).with(sku))]
/// async fn deduct(pool: &Pool, warehouse: &str, sku: u64, count: u32) -> Result<u32, SoldOut> {
///     let left = pool.count(warehouse, sku).await?.checked_sub(count).ok_or(SoldOut)?;
///     pool.set(warehouse, sku, left).await?;
///     Ok(left)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let left: Result<u32, LockedError<SoldOut>> = deduct(&Pool, "berlin", 42, 3).await;
/// assert_eq!(left.unwrap(), 2);
/// # }
/// ```
///
/// # The key
/// An expression for a [`Key`], evaluated in each call before the body, that may name the arguments; it
/// borrows those that the body owns (`.with(&name)`). Arguments that are not in it do not matter: calls that
/// differ only in those exclude each other. So do two functions with one key and the same locks.
///
/// # The function
/// It is an `async fn` that returns a `Result<T, E>`. The attribute makes it return `Result<T,
/// LockedError<E>>` ([`LockedError`]). It runs in the task of its caller, and may borrow. Methods
/// of types are supported; methods of traits are not.
///
/// It returns when the lock has been released, as [`Locks::run`] does.
///
/// [`Locks::when_lost`] says what happens if the lock is lost meanwhile. Inside,
/// [`LockStatus::current`](super::LockStatus::current) has the fence. A function that calls itself
/// blocks itself until its wait limit, unless the locks are [owned](Locks::owned_by).
///
/// # Options
/// | option | |
/// |---|---|
/// | `key = ..` | the key |
/// | `locks = ..` | an expression for [`Locks`], evaluated in each call; it may name the arguments. `LOCKS.clone().wait(..)` waits in another way |
///
/// # Cancel safety
/// That of [`Locks::run`].
pub use bellwether_macros::locked;

use bellwether::{BoxError, Key, SharedError};

use super::locked_error::LockedError;
use super::{Lock, Locks};

/// A clone of the locks for one call: the body may own what they are borrowed from.
#[doc(hidden)]
pub fn locks<L: Lock>(locks: &Locks<L>) -> Locks<L> {
    locks.clone()
}

/// Runs one call of a function under the lock.
#[doc(hidden)]
pub async fn run<L: Lock, T, E>(
    locks: &Locks<L>,
    key: &Key,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, LockedError<E>>
where
    E: Into<BoxError>,
{
    locks.run(key, work).await?.map_err(|error| LockedError::Inner(SharedError::new(error)))
}
