//! The attribute form: a function that is read through a layer.

use std::future::Future;
use std::task::{Context, Poll};

/// Reads an `async fn` through a [`ReadThroughLayer`], under a key that is made of its arguments.
///
/// ```
/// use std::sync::LazyLock;
///
/// use bellwether::{ByKey, Error, MemoryStore, ReadThroughLayer, read_through};
/// # #[derive(Clone)]
/// # struct Catalog;
/// # type DbError = std::io::Error;
/// # impl Catalog {
/// #     async fn query(&self, _: &str, sku: u64) -> Result<u64, DbError> { Ok(sku) }
/// # }
///
/// static CACHE: LazyLock<ReadThroughLayer<ByKey>> =
///     LazyLock::new(|| ReadThroughLayer::by_key(MemoryStore::new(10_000)));
///
/// #[read_through(
///     layer = CACHE,
///     key = "stock/{warehouse}/{sku}",
///     skip(catalog),
///     ttl = "60s",
///     key_fn = stock_key,
/// )]
/// async fn stock(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<u64, DbError> {
///     catalog.query(warehouse, sku).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let catalog = Catalog;
/// let answer: Result<u64, Error<DbError>> = stock(&catalog, "berlin", 42).await;
/// assert_eq!(answer.unwrap(), 42);
///
/// // After the source has changed:
/// CACHE.handle().invalidate(&stock_key("berlin", 42)).await?;
/// # Ok(())
/// # }
/// ```
///
/// A method may use a layer in its own type. Here `None` is stored too, for a shorter time
/// (negative caching):
///
/// ```
/// use bellwether::{ByKey, ReadThroughLayer, read_through};
/// # #[derive(Clone)]
/// # struct Pool;
/// # impl Pool {
/// #     async fn find(&self, id: u64) -> std::io::Result<Option<String>> { Ok(None) }
/// # }
///
/// #[derive(Clone)]
/// struct Users { pool: Pool, cache: ReadThroughLayer<ByKey> }
///
/// impl Users {
///     #[read_through(
///         layer = self.cache,
///         key = "user/{id}",
///         skip(self),
///         ttl = "5m",
///         not_found_ttl = "5s",
///         key_fn = name_key,
///     )]
///     async fn name(&self, id: u64) -> std::io::Result<Option<String>> {
///         self.pool.find(id).await
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bellwether::CacheError> {
/// # let cache = ReadThroughLayer::by_key(bellwether::MemoryStore::new(10));
/// # let users = Users { pool: Pool, cache };
/// # assert_eq!(users.name(1).await.unwrap(), None);
/// // The function of the key belongs to the type, as the method does:
/// let was_stored = users.cache.handle().invalidate(&Users::name_key(1)).await?;
/// # assert!(was_stored);
/// # Ok(())
/// # }
/// ```
///
/// # The key
/// A template is like a path: segments between slashes. Each segment is text, an argument in
/// braces, or a field of one: `"stock/{item.sku}"`. The first segment is text, the kind of the key.
/// The others are typed parts: the key above is `Key::of("stock").with(warehouse).with(sku)`. So no
/// two keys can be confused: `("a", "b/c")` and `("a/b", "c")` differ. Arguments and fields in a
/// template must be [`KeyPart`](crate::KeyPart)s.
///
/// **Every argument is in the key or in `skip(..)`,** `self` too. An argument in neither is a
/// compile error that names it: with a key that lacks it, two different calls would share one
/// answer. If the key has one field of an argument, the answer must not depend on the other fields.
///
/// A key does not name the function: two functions with one template and one layer share their
/// answers. Give each type of answer a kind of key. Two functions with different types share no
/// load, and under one key each replaces what the other has stored. In a shared store a function may
/// also get the other function's answer, if the two types have the same JSON.
///
/// # The function
/// It is an `async fn` that returns a `Result<T, E>`, and becomes one that returns `Result<T,
/// Error<E>>` ([`Error`]): callers that share a load share its error. The layer must be able to
/// store `T`: by default any owned type that is `Clone + Serialize + DeserializeOwned`.
///
/// A load may [outlive](crate::WhenAbandoned) the call that began it, so it owns its arguments.
/// Borrowed ones, such as `&str`, are copied by [`ToOwned`] on every call. All must be `Clone +
/// Send + Sync + 'static`. If a copy is expensive, pass an `Arc`. A load uses the arguments of the
/// caller that began it, the skipped ones included.
///
/// Every call of the function by its name is read through the layer, also from its own body.
/// Methods of traits are not supported; those of types are, with `self`, `&self` or `self:
/// Arc<Self>`.
///
/// # Options
/// | option | |
/// |---|---|
/// | `key = "kind/{argument}"` | the key |
/// | `layer = ..` | an expression for a [`ReadThroughLayer<ByKey>`](ByKey), evaluated in each call; it may name the arguments |
/// | `skip(catalog, self)` | the arguments on which the answer does not depend |
/// | `ttl`, `stale_while_revalidate`, `stale_if_error` | as the options of [`ReadThroughLayer`] by these names, such as `"60s"`; units are `ms`, `s`, `m`, `h` and `d` |
/// | `not_found_ttl` | how long `None` is stored, for functions that return an `Option` in the `Result`. It replaces the layer's [`classify`](ReadThroughLayer::classify) |
/// | `tags = ["shelf/{warehouse}"]` | the [tags](ReadThroughLayer::tags) of the answer, as templates like that of the key; each argument in them is in the key, too. They replace the layer's |
/// | `key_fn = name` | also makes a function of this name, from the arguments of the key to the key, for invalidation. In an `impl` it belongs to the type: `Users::name_key(1)` |
///
/// Everything else is as the layer sets it.
///
/// # Cancel safety
/// As a [`ResponseFuture`](crate::ResponseFuture).
pub use bellwether_macros::read_through;
use tower::{Layer, Service};

use super::layer::ReadThroughLayer;
use crate::codec::{Cacheability, Classified, Codec};
use crate::error::{BoxError, Error};
use crate::key::Key;
use crate::store::Store;

/// The key function of a layer for `#[read_through]` functions: its requests are keys already.
pub type ByKey = fn(&Key) -> Key;

impl ReadThroughLayer<ByKey> {
    /// A layer for functions with the attribute `#[read_through]`, which make their own keys.
    ///
    /// Functions with one layer, or with clones of it, share its loads and its store: the same key
    /// has the same answer. An option that an attribute does not set is the layer's.
    pub fn by_key<S: Store>(store: S) -> Self {
        Self::new(store, Key::clone as ByKey)
    }
}

/// The value and the error of a function's `Result`, by any alias of it.
#[doc(hidden)]
pub trait FunctionResult {
    type Value;
    type Error;
}

impl<T, E> FunctionResult for Result<T, E> {
    type Value = T;
    type Error = E;
}

/// A clone of a layer for one call of a function. It shares the loads of the original.
#[doc(hidden)]
pub fn layer<C>(layer: &ReadThroughLayer<ByKey, C>) -> ReadThroughLayer<ByKey, C> {
    layer.clone()
}

/// One call of a function.
#[doc(hidden)]
pub async fn read<T, E, C, F, Loading>(
    layer: ReadThroughLayer<ByKey, C>,
    key: Key,
    load: F,
) -> Result<T, Error<E>>
where
    C: Codec<T>,
    E: Into<BoxError> + Send + Sync + 'static,
    F: FnOnce() -> Loading + Clone + Send + 'static,
    Loading: Future<Output = Result<T, E>> + Send,
{
    layer.layer(FunctionLoader(load)).call(key).await
}

/// As [`read`], for a function that may return `None`, which is stored for the layer's
/// `not_found_ttl`.
#[doc(hidden)]
pub async fn read_optional<T, E, C, F, Loading>(
    layer: ReadThroughLayer<ByKey, C>,
    key: Key,
    load: F,
) -> Result<Option<T>, Error<E>>
where
    T: 'static,
    C: Codec<Option<T>, Kept = Option<T>> + Clone,
    E: Into<BoxError> + Send + Sync + 'static,
    F: FnOnce() -> Loading + Clone + Send + 'static,
    Loading: Future<Output = Result<Option<T>, E>> + Send,
{
    let classified: ReadThroughLayer<_, Classified<C, ClassifyOption<T>>> =
        layer.classified_alike(|found| {
            if found.is_some() { Cacheability::Keep } else { Cacheability::NotFound }
        });
    classified.layer(FunctionLoader(load)).call(key).await
}

/// Classifies `None` as `NotFound`.
type ClassifyOption<T> = fn(&Option<T>) -> Cacheability;

/// The body of a function with its arguments, as a loader.
#[derive(Clone)]
struct FunctionLoader<F>(F);

impl<F, Loading, T, E> Service<Key> for FunctionLoader<F>
where
    F: FnOnce() -> Loading + Clone,
    Loading: Future<Output = Result<T, E>>,
{
    type Response = T;
    type Error = E;
    type Future = Loading;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Key) -> Loading {
        (self.0.clone())()
    }
}
