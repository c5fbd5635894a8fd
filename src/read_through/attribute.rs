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
/// # #[derive(Debug)]
/// # struct DbError;
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
/// A method may be read through what it belongs to. What is asked for is kept, and so is, for a
/// shorter time, that there is none:
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
///     #[read_through(layer = self.cache, key = "user/{id}", skip(self), ttl = "5m", not_found_ttl = "5s")]
///     async fn name(&self, id: u64) -> std::io::Result<Option<String>> {
///         self.pool.find(id).await
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let cache = ReadThroughLayer::by_key(bellwether::MemoryStore::new(10));
/// # assert_eq!(Users { pool: Pool, cache }.name(1).await.unwrap(), None);
/// # }
/// ```
///
/// # The key
/// A template is like a path: segments between slashes, and each is text or one argument in braces,
/// or a field of one: `"stock/{item.sku}"`. The first is text, the kind of the key. The others are
/// typed parts, so what stands above is `Key::of("stock").with(warehouse).with(sku)`, and no two
/// keys can run together: `("a", "b/c")` and `("a/b", "c")` differ. Arguments, or the fields that
/// are named, have to be [`KeyPart`](crate::KeyPart)s.
///
/// **Every argument is in the key, or in `skip(..)`,** `self` too: an argument that is in neither is
/// a compile error that names it, since a key without it would give one's answer to the other. To
/// name a field is to say that the other fields do not matter.
///
/// A key says nothing of the function: two functions with one template and one layer have the same
/// answers. If these are of different types, a call is answered with
/// [`CacheErrorKind::OtherType`](crate::CacheErrorKind::OtherType) or loads again, never with the
/// other's answer; but two types that are alike as JSON are, in a store that is shared. Give each
/// kind of answer a kind of key.
///
/// # The function
/// It is an `async fn` that returns a `Result<T, E>`, and becomes one that returns
/// `Result<T, Error<E>>` ([`Error`]): callers that share a load share its error. `T` is what the layer
/// can keep: by default anything that is `Clone + Serialize + DeserializeOwned`, and owned.
///
/// A load [outlives](crate::WhenAbandoned) the call that began it, so it owns its arguments: what
/// is lent, as `&str`, is copied for it by [`ToOwned`] on every call, and all have to be
/// `Clone + Send + Sync + 'static`. Where that is dear, lend a handle, such as an `Arc`. The load has
/// the arguments of the caller that began it, the skipped ones included.
///
/// Every call of the function by its name is read through the layer, also from its own body. Methods of
/// traits are not supported; those of types are, with `self`, `&self` or
/// `self: Arc<Self>`.
///
/// # Options
/// | option | |
/// |---|---|
/// | `key = "kind/{argument}"` | the key |
/// | `layer = ..` | an expression for a [`ReadThroughLayer<ByKey>`](ByKey), evaluated in each call; it may name the arguments |
/// | `skip(catalog, self)` | the arguments on which the answer does not depend |
/// | `ttl`, `stale_while_revalidate`, `stale_if_error` | as the knobs of [`ReadThroughLayer`] by these names, such as `"60s"`; units are `ms`, `s`, `m`, `h` and `d` |
/// | `not_found_ttl` | the same, for functions that return an `Option` in the `Result`: how long `None` is kept. It takes the place of the layer's [`classify`](ReadThroughLayer::classify) |
/// | `key_fn = name` | also makes a function of this name, which takes the arguments of the key and gives the key: to invalidate by |
///
/// Without an option, and for all that has none, it is as the layer says.
///
/// # Cancel safety
/// That of a [`ResponseFuture`](crate::ResponseFuture).
pub use bellwether_macros::read_through;
use tower::{Layer, Service};

use super::layer::ReadThroughLayer;
use crate::codec::{Cacheability, Classified, Codec};
use crate::error::Error;
use crate::key::Key;
use crate::store::Store;

/// How a layer is asked whose requests are keys: what `#[read_through]` functions are read through.
pub type ByKey = fn(&Key) -> Key;

impl ReadThroughLayer<ByKey> {
    /// A layer for functions with the attribute `#[read_through]`, which make their own keys.
    ///
    /// Functions that are read through one layer, or clones of it, share its loads and its store:
    /// those whose keys are the same have the same answers. Knobs that an attribute does not set
    /// are those of the layer.
    pub fn by_key<S: Store>(store: S) -> Self {
        Self::new(store, Key::clone as ByKey)
    }
}

/// What a function returns, whatever its name is for `Result`.
#[doc(hidden)]
pub trait FunctionResult {
    type Value;
    type Error;
}

impl<T, E> FunctionResult for Result<T, E> {
    type Value = T;
    type Error = E;
}

/// A layer of its own for one call of a function. It shares the loads of the other.
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
    E: Send + Sync + 'static,
    F: FnOnce() -> Loading + Clone + Send + 'static,
    Loading: Future<Output = Result<T, E>> + Send,
{
    layer.layer(Loader(load)).call(key).await
}

/// As [`read`], of something that may not be there: `None` is kept for as long as the layer says of
/// answers that say "there is none".
#[doc(hidden)]
pub async fn read_optional<T, E, C, F, Loading>(
    layer: ReadThroughLayer<ByKey, C>,
    key: Key,
    load: F,
) -> Result<Option<T>, Error<E>>
where
    T: 'static,
    C: Codec<Option<T>, Kept = Option<T>> + Clone,
    E: Send + Sync + 'static,
    F: FnOnce() -> Loading + Clone + Send + 'static,
    Loading: Future<Output = Result<Option<T>, E>> + Send,
{
    let judged: ReadThroughLayer<_, Classified<C, Judge<T>>> = layer.classified_alike(|found| {
        if found.is_some() { Cacheability::Keep } else { Cacheability::NotFound }
    });
    judged.layer(Loader(load)).call(key).await
}

/// Tells "there is none" from an answer.
type Judge<T> = fn(&Option<T>) -> Cacheability;

/// The body of a function with its arguments: a load of whatever is asked for.
#[derive(Clone)]
struct Loader<F>(F);

impl<F, Loading, T, E> Service<Key> for Loader<F>
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
