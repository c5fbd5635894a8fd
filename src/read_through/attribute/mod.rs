//! The attribute form: a function that is read through a layer.

mod entry_handle;
mod expanded;

/// Reads an `async fn` through a [`ReadThroughLayer`](crate::ReadThroughLayer), under a key that is made of its arguments.
///
/// ```
/// use std::sync::LazyLock;
///
/// use bellwether::{ByKey, CacheStatus, Error, MemoryStore, ReadThroughLayer, read_through};
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
///     entry_fn = stock_entry,
/// )]
/// async fn stock(catalog: &Catalog, warehouse: &str, sku: u64) -> Result<u64, DbError> {
///     catalog.query(warehouse, sku).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let catalog = Catalog;
/// let answer: Result<u64, Error<DbError>> = stock(&catalog, "berlin", 42).await;
/// assert_eq!(answer?, 42);
///
/// // The answer, and how it came about:
/// let (answer, status) = stock(&catalog, "berlin", 42).with_status().await;
/// assert_eq!(answer?, 42);
/// assert!(matches!(status, CacheStatus::Hit { .. }));
///
/// // After the source has changed, by the same arguments:
/// stock_entry("berlin", 42).invalidate().await?;
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
///         entry_fn = name_entry,
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
/// // UPDATE users SET name = 'Ada' WHERE id = 1
/// users.name_entry(1).put(Some("Ada".to_owned())).await?;
/// # assert_eq!(users.name(1).await.unwrap().as_deref(), Some("Ada"));
/// # Ok(())
/// # }
/// ```
///
/// # Many keys in one call
/// With `each(..)`, a function loads many answers at once, and becomes one that returns a
/// [`BatchFuture`](crate::BatchFuture): an answer for each key, in their order. One round trip looks
/// up all of them, and one call of the function loads the misses; each key is still coalesced by
/// itself. The function returns a [`BatchResponse`](crate::BatchResponse), such as a map.
///
/// ```
/// use std::collections::HashMap;
/// use std::io;
///
/// use bellwether::{ByKey, MemoryStore, ReadThroughLayer, read_through};
/// # #[derive(Clone)]
/// # struct Pool;
///
/// // SELECT sku, name FROM items WHERE sku = ANY($1)
/// #[read_through(layer = layer, key = "name/{sku}", each(sku in skus), skip(layer, pool), ttl = "60s")]
/// async fn names(
///     layer: &ReadThroughLayer<ByKey>,
///     pool: &Pool,
///     skus: Vec<u64>,
/// ) -> io::Result<HashMap<u64, String>> {
///     Ok(skus.into_iter().filter(|sku| *sku < 100).map(|sku| (sku, format!("item {sku}"))).collect())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let layer = ReadThroughLayer::by_key(MemoryStore::new(10));
/// # let pool = Pool;
/// let mut page = vec![];
/// for name in names(&layer, &pool, vec![7, 4, 1_000]).await {
///     page.push(name?);
/// }
/// assert_eq!(page, [Some("item 7".to_owned()), Some("item 4".to_owned()), None]);
/// # Ok(())
/// # }
/// ```
///
/// A function of one key and one of many keys share their loads and their answers if their keys are
/// the same, and the types of an answer and of the errors.
///
/// # The key
/// A template is like a path: segments between slashes. Each segment is text, an argument in
/// braces, or a field of one: `"stock/{item.sku}"`. The first segment is text, the kind of the key.
/// The others are typed parts: the key above is `Key::of("stock").with(warehouse).with(sku)`. So no
/// two keys can be confused: `("a", "b/c")` and `("a/b", "c")` differ. Arguments and fields in a
/// template must be [`CacheKey`](crate::CacheKey)s.
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
/// It is an `async fn` that returns a `Result<T, E>`. It becomes a function that returns a
/// [`AnswerFuture<T, E>`](crate::AnswerFuture). Its future gives a `Result<T, Error<E>>`
/// ([`Error`](crate::Error)), since callers that share a load share its error;
/// [`with_status`](crate::AnswerFuture::with_status) gives the
/// [`CacheStatus`](crate::CacheStatus) too. The layer must be able to store `T`: by default any
/// owned type that is `Clone + Serialize + DeserializeOwned`.
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
/// | `each(sku in skus)` | the function loads many answers: `skus`, a `Vec`, has what differs from key to key, and templates name one of them `sku` |
/// | `ttl`, `stale_while_revalidate`, `stale_if_error` | as the options of [`ReadThroughLayer`](crate::ReadThroughLayer) by these names, such as `"60s"`; units are `ms`, `s`, `m`, `h` and `d` |
/// | `not_found_ttl` | how long `None` is stored, for functions whose answer is an `Option`. It replaces the layer's [`classify`](crate::ReadThroughLayer::classify) |
/// | `tags = ["catalog", "shelf/{warehouse}" as shelf_tag]` | the [tags](crate::ReadThroughLayer::tags) of the answer, as templates like that of the key; each argument in them is in the key, too. They replace the layer's. With `as`, also makes a function from the arguments of the template to the [`Tag`](crate::Tag): `shelf_tag("berlin")` |
/// | `entry_fn = name` | also makes a function to the [`EntryHandle`](crate::EntryHandle) of one answer, which invalidates, expires, reads and replaces it. Its arguments are those that the key and `layer` name |
/// | `key_fn = name` | also makes a function from the arguments of the key to the [`Key`](crate::Key), for [handles](crate::Handle) of the layer |
///
/// In an `impl`, the functions that are made belong to the type: `Users::name_key(1)`, or
/// `users.name_entry(1)` if it needs `self`. Everything else is as the layer sets it.
///
/// # Cancel safety
/// As a [`ResponseFuture`](crate::ResponseFuture).
pub use bellwether_macros::read_through;

pub use self::entry_handle::EntryHandle;
#[doc(hidden)]
pub use self::expanded::{
    AnswerOption, BorrowedArgument, FunctionError, FunctionResult, entry, layer, optional, owned,
    read, read_many,
};

pub use super::layer::ByKey;
