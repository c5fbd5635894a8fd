//! The attribute form: a function that runs under a lock.

use std::future::Future;

/// Runs an `async fn` while a key that is made of its arguments is locked.
///
/// ```
/// use std::sync::LazyLock;
/// use std::time::Duration;
///
/// use bellwether_lock::{LocalLock, LockedError, Locks};
/// use bellwether_lock::locked;
/// # struct Pool;
/// # #[derive(Debug)]
/// # struct SoldOut;
/// # impl Pool {
/// #     async fn count(&self, _: &str, _: u64) -> Result<u32, SoldOut> { Ok(5) }
/// #     async fn set(&self, _: &str, _: u64, _: u32) -> Result<(), SoldOut> { Ok(()) }
/// # }
///
/// static LOCKS: LazyLock<Locks<LocalLock>> = LazyLock::new(|| Locks::new(LocalLock::new()));
///
/// #[locked(locks = LOCKS, key = "stock/{warehouse}/{sku}", wait = "2s")]
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
/// A template as [`#[read_through]`](macro@bellwether::read_through) has it: segments between slashes, the
/// first is text, and each of the others is text or one argument in braces, or a field of one. What
/// stands above is `Key::of("stock").with(warehouse).with(sku)`. An argument that is not in it does
/// not matter to the lock: two calls that differ in nothing else are made one after the other.
///
/// A key says nothing of the function: two functions with one template and the same locks exclude
/// each other.
///
/// # The function
/// It is an `async fn` that returns a `Result<T, E>`, and becomes one that returns
/// `Result<T, LockedError<E>>` ([`LockedError`]). It runs in the task of its
/// caller, and may borrow. Methods of traits are not supported; those of types are.
///
/// It returns when the lock has been released, as [`Locks::run`] does.
///
/// If the lock is lost meanwhile, it is as [`Locks::when_lost`] says. Inside,
/// [`Standing::current`](super::Standing::current) has the fence. A function that calls itself waits
/// for itself in vain, unless the locks are [owned](Locks::owned_by).
///
/// # Options
/// | option | |
/// |---|---|
/// | `key = "kind/{argument}"` | the key |
/// | `locks = ..` | an expression for [`Locks`], evaluated in each call; it may name the arguments |
/// | `wait = "2s"` | waits that long at most, instead of what the locks say; units are `ms`, `s`, `m`, `h` and `d` |
///
/// # Cancel safety
/// That of [`Locks::run`].
pub use bellwether_macros::locked;

use bellwether::Key;

use super::running::LockedError;
use super::{Lock, Locks};

/// Locks of its own for one call of a function. They share what is under way with the other.
#[doc(hidden)]
pub fn locks<L: Lock>(locks: &Locks<L>) -> Locks<L> {
    locks.clone()
}

/// One call of a function.
#[doc(hidden)]
pub async fn run<L: Lock, T, E>(
    locks: &Locks<L>,
    key: &Key,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, LockedError<E>> {
    locks.run(key, work).await?.map_err(LockedError::Inner)
}
