//! The attribute form: an async function whose values are read through a `Cache`.

use std::future::Future;

use tower::service_fn;

use super::Cache;
use crate::codec::{Codec, RuledCodec};
use crate::error::BoxError;
use crate::key::{CacheKey, Key, KeyOf};
use crate::read_through::adapter_cache::AdapterCache;
use crate::read_through::future::AnswerFuture;
use crate::read_through::key_request::RequestOptions;
use crate::tag::{Tag, Tags};

/// Reads an `async fn` through a [`Cache`], under a key that is made of its arguments.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::{Cache, CacheStatus, ConfigError, Error, MemoryStore, read_through};
/// # #[derive(Clone)]
/// # struct Pool;
/// # type DbError = std::io::Error;
/// # async fn query(_: &Pool, _: &str, sku: u64) -> Result<u64, DbError> { Ok(sku) }
///
/// #[derive(Clone)]
/// struct Catalog {
///     pool: Pool,
///     stock: Cache<(String, u64), u64>,
/// }
///
/// impl Catalog {
///     fn new(pool: Pool) -> Result<Self, ConfigError> {
///         let store = MemoryStore::new(10_000);
///         Ok(Self { pool, stock: Cache::builder("stock", store).ttl(Duration::from_secs(60)).build()? })
///     }
///
///     #[read_through(cache = self.stock, skip(self))]
///     async fn stock(&self, warehouse: &str, sku: u64) -> Result<u64, DbError> {
///         query(&self.pool, warehouse, sku).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let catalog = Catalog::new(Pool)?;
/// let answer: Result<u64, Error<DbError>> = catalog.stock("berlin", 42).await;
/// assert_eq!(answer?, 42);
///
/// // The answer, and how it came about:
/// let (answer, status) = catalog.stock("berlin", 42).with_status().await;
/// assert_eq!(answer?, 42);
/// assert!(matches!(status, CacheStatus::Hit { .. }));
///
/// // After the source has changed, by the same arguments:
/// catalog.stock.invalidate(("berlin", 42)).await?;
/// # Ok(())
/// # }
/// ```
///
/// The cache says how long a value is fresh, what becomes of `None` and of errors, and everything else
/// (see [`CacheBuilder`](crate::CacheBuilder)). It invalidates, expires, reads and replaces values, and
/// loads many of them at once: see [`get_or_load_many`](Cache::get_or_load_many). It may be in a field,
/// in a `static` `LazyLock` or in an argument.
///
/// # The key
/// The arguments that are not skipped are the key, in their order: one alone, or up to six as a tuple.
/// So the cache of the function above has keys of type `(String, u64)`. An argument of type `&str`
/// stands for a `String`, and a reference for what it refers to.
///
/// `key = ..` makes the key of something else: an expression, such as a field of an argument, or a tuple of
/// them.
///
/// ```
/// use bellwether::{Cache, Tag, read_through};
/// # #[derive(Clone)]
/// # struct Item { sku: u64, shelf: u64, note: String }
///
/// #[read_through(
///     cache = prices,
///     key = item.sku,
///     skip(prices),
///     tags = [Tag::of("price"), Tag::of("shelf").with(item.shelf)],
/// )]
/// async fn price(prices: &Cache<u64, u64>, item: &Item) -> std::io::Result<u64> {
///     Ok(item.sku * 100)
/// }
/// ```
///
/// **Every argument is in the key or in `skip(..)`,** `self` too. An argument in neither is a
/// compile error that names it: with a key that lacks it, two different calls would share one
/// answer. If the key has one field of an argument, the answer must not depend on the other fields.
///
/// A key does not name the function: two functions with one cache share its values, and so do the instances of a
/// generic one.
///
/// # The function
/// It is an `async fn` that returns a `Result<T, E>`. It becomes a function that returns an
/// [`AnswerFuture<T, E>`](crate::AnswerFuture). Its future gives a `Result<T, Error<E>>`
/// ([`Error`](crate::Error)), since callers that share a load share its error;
/// [`with_status`](crate::AnswerFuture::with_status) gives the
/// [`CacheStatus`](crate::CacheStatus) too.
///
/// A load may [outlive](crate::WhenAbandoned) the call that began it, so it owns its arguments.
/// Borrowed ones, such as `&str`, are copied by [`ToOwned`] on every call. All must be
/// `Send + Sync + 'static`. If a copy is expensive, pass an `Arc`. A load uses the arguments of the
/// caller that began it, the skipped ones included.
///
/// Every call of the function by its name is read through the cache, also from its own body.
/// Methods of traits are not supported; those of types are, with `self`, `&self` or `self:
/// Arc<Self>`.
///
/// # Options
/// | option | |
/// |---|---|
/// | `cache = ..` | an expression for a [`Cache`], evaluated in each call; it may name the arguments |
/// | `skip(catalog, self)` | the arguments on which the answer does not depend |
/// | `key = ..` | the key, if it is not all other arguments: an expression that borrows them |
/// | `tags = [..]` | the [tags](Cache::tagged) of the answer, each made of what is in the key |
///
/// # Cancel safety
/// As an [`AnswerFuture`](crate::AnswerFuture).
pub use bellwether_macros::read_through;

/// The value and the error of a function's `Result`, by any alias of it.
pub trait FunctionResult {
    type Value;
    type Error;
}

impl<T, E> FunctionResult for Result<T, E> {
    type Value = T;
    type Error = E;
}

/// The parts of a key of type `K`: the key itself, or what names each part of a tuple.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` are no key of a cache whose keys are `{K}`",
    note = "all arguments are the key, in their order, but for those in `skip(..)`"
)]
pub trait PartsOf<K>: CacheKey {}

impl PartsOf<()> for () {}
impl<K, A: KeyOf<K>> PartsOf<K> for (A,) {}

macro_rules! parts_of_tuples {
    ($($part:ident $key:ident)*) => {
        impl<$($part: KeyOf<$key>, $key),*> PartsOf<($($key,)*)> for ($($part,)*) {}
    };
}

parts_of_tuples!(A K B L);
parts_of_tuples!(A K B L C M);
parts_of_tuples!(A K B L C M D N);
parts_of_tuples!(A K B L C M D N E O);
parts_of_tuples!(A K B L C M D N E O F P);

/// An argument that a function borrows. Each load has a copy of type `O`.
#[diagnostic::on_unimplemented(
    message = "a load may outlive its caller, so it has a copy of `{Self}`, which is not `Clone`",
    label = "cannot be copied for the load",
    note = "derive `Clone` for `{Self}`, or pass an `Arc` of it"
)]
pub trait BorrowedArgument<O> {
    fn copied(&self) -> O;
}

// Otherwise the compiler speaks of `ToOwned`.
#[diagnostic::do_not_recommend]
impl<T: ToOwned<Owned = O> + ?Sized, O> BorrowedArgument<O> for T {
    fn copied(&self) -> O {
        self.to_owned()
    }
}

/// The copy of an argument for a load.
pub fn owned<T: BorrowedArgument<O> + ?Sized, O>(argument: &T) -> O {
    argument.copied()
}

/// The error of a function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a function that is read through a cache: it is no `std::error::Error`",
    label = "not a `std::error::Error`",
    note = "callers in other processes get its text, so it must have one: return a type that implements \
            `std::error::Error + Send + Sync`, or a `Box` of that trait"
)]
pub trait FunctionError: Into<BoxError> + Send + Sync + 'static {}

// Otherwise the compiler speaks of `Into<Box<dyn Error>>`.
#[diagnostic::do_not_recommend]
impl<E: Into<BoxError> + Send + Sync + 'static> FunctionError for E {}

/// One call of a function. It borrows no argument.
#[derive(Debug)]
pub struct Call<V, C> {
    client: AdapterCache<RuledCodec<V, C>>,
    key: Key,
    options: RequestOptions,
}

/// A call, by its cache and its key. Without tags, it has those of the cache.
pub fn call<K, V, C>(
    cache: &Cache<K, V, C>,
    key: impl PartsOf<K>,
    tags: impl IntoIterator<Item = Tag>,
) -> Call<V, C> {
    let tags = Tags::unbounded(tags);
    let options = cache.options.clone();
    let options = if tags.is_empty() { options } else { options.tagged(tags) };
    Call { client: cache.client.clone(), key: Key::of(&cache.name).with(key), options }
}

/// The answer to a call.
pub fn read<V, E, C, F, L>(call: Call<V, C>, load: F) -> AnswerFuture<V, E>
where
    V: Send + Sync + 'static,
    C: Codec<V, Kept = V>,
    E: FunctionError,
    F: FnOnce() -> L + Send + 'static,
    L: Future<Output = Result<V, E>> + Send + 'static,
{
    let Call { client, key, options } = call;
    client.request(key, options, &service_fn(|load: F| load()), load)
}
