//! Errors: failures of the loader, of the cache and of the store.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::config_error::ConfigError;
use crate::key::Key;
use crate::tag::Tag;

/// An error of any type, as Tower's middleware gives it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a request was not answered: the loader failed, or the cache did.
#[allow(clippy::exhaustive_enums, reason = "either the loader fails or the cache")]
pub enum Error<E> {
    /// The loader failed. Callers that share a load share its error.
    Load(SharedError<E>),
    /// The cache could not answer, and its policy does not let the request load without it.
    Cache(CacheError),
}

impl<E> Error<E> {
    /// An error of the loader, to be shared.
    pub(crate) fn of(error: E) -> Self
    where
        E: Into<BoxError>,
    {
        Self::Load(SharedError::new(error))
    }

    /// The loader's own error, if the loader failed. A [`BoxError`] is no error type itself: for
    /// one, use [`source`](StdError::source).
    pub fn load(&self) -> Option<&E>
    where
        E: StdError + 'static,
    {
        match self {
            Self::Load(error) => error.get(),
            Self::Cache(_) => None,
        }
    }

    /// Whether the loader said that there is no such thing, here or in another process: see
    /// [`ErrorClass::NotFound`](crate::ErrorClass::NotFound).
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Load(error) => error.is_not_found(),
            Self::Cache(error) => error.kind() == CacheErrorKind::NotFound,
        }
    }

    /// The error of the cache, if the cache failed.
    pub fn cache(&self) -> Option<&CacheError> {
        match self {
            Self::Load(_) => None,
            Self::Cache(error) => Some(error),
        }
    }
}

impl<E> Clone for Error<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Load(error) => Self::Load(error.clone()),
            Self::Cache(error) => Self::Cache(error.clone()),
        }
    }
}

impl<E> From<CacheError> for Error<E> {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

impl<E> fmt::Debug for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => f.debug_tuple("Load").field(error).finish(),
            Self::Cache(error) => f.debug_tuple("Cache").field(error).finish(),
        }
    }
}

impl<E> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(f, "loader failed: {error}"),
            Self::Cache(error) => error.fmt(f),
        }
    }
}

/// The [`source`](StdError::source) is the loader's own error, or that of the cache. The message
/// contains what it says.
impl<E> StdError for Error<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Load(error) => Some(&**error),
            Self::Cache(error) => Some(error),
        }
    }
}

/// An error of an inner service, shared by all callers that it concerns. Clones share it.
///
/// It dereferences to `dyn Error`, and the [`source`](StdError::source) of the error around it is
/// the same `dyn Error`. So a program that walks the chain finds an `E`, and whatever a
/// [`BoxError`](crate::BoxError) holds, by `downcast_ref`. If `E` is an error type,
/// [`get`](Self::get) returns it without a cast.
///
/// ```
/// use bellwether::SharedError;
/// use std::io::{Error, ErrorKind};
///
/// let error = SharedError::new(Error::from(ErrorKind::NotFound));
/// assert_eq!(error.get().map(Error::kind), Some(ErrorKind::NotFound));
/// assert!(error.is::<Error>());
/// ```
pub struct SharedError<E> {
    error: Arc<dyn StdError + Send + Sync>,
    is_not_found: bool,
    made_of: PhantomData<fn() -> E>,
}

impl<E> SharedError<E> {
    /// Shares an error.
    pub fn new(error: E) -> Self
    where
        E: Into<BoxError>,
    {
        Self::erased(error.into().into())
    }

    pub(crate) fn erased(error: Arc<dyn StdError + Send + Sync>) -> Self {
        Self { error, is_not_found: false, made_of: PhantomData }
    }

    /// The same error, as one that says "there is none".
    pub(crate) fn not_found(self) -> Self {
        Self { is_not_found: true, ..self }
    }

    /// Whether the program has [classified](crate::service::ReadThroughLayerBuilder::classify_error) it as
    /// [`ErrorClass::NotFound`](crate::ErrorClass::NotFound).
    pub fn is_not_found(&self) -> bool {
        self.is_not_found
    }

    pub(crate) fn into_erased(self) -> Arc<dyn StdError + Send + Sync> {
        self.error
    }

    /// The error. Never `None` for an error that was made of an `E`.
    pub fn get(&self) -> Option<&E>
    where
        E: StdError + 'static,
    {
        self.error.downcast_ref()
    }

    /// Whether both are one error, of one call.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.error, &other.error)
    }
}

impl<E> Deref for SharedError<E> {
    type Target = dyn StdError + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.error
    }
}

impl<E> Clone for SharedError<E> {
    fn clone(&self) -> Self {
        Self { error: Arc::clone(&self.error), ..*self }
    }
}

impl<E> fmt::Debug for SharedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<E> fmt::Display for SharedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

/// Why the cache could not answer.
///
/// Opaque, so that it can carry more in later versions; a program matches on
/// [`kind`](CacheError::kind). Messages name the key by its kind and digest, and never hold a value
/// or a secret.
///
/// The [`source`](StdError::source) is what caused it, such as the [`StoreError`]. The message
/// contains that of the source.
#[derive(Clone, Debug)]
pub struct CacheError {
    kind: CacheErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl CacheError {
    /// What there is no room for, if as many loads are under way as may be.
    pub(crate) const LOADS: &str = "loads are under way";

    /// What went wrong.
    pub fn kind(&self) -> CacheErrorKind {
        self.kind
    }

    /// Whether the store [keeps](StoreError::pending) and repeats the invalidation, or all that failed.
    pub fn is_pending(&self) -> bool {
        self.source().and_then(|source| source.downcast_ref()).is_some_and(StoreError::is_pending)
    }

    pub(crate) fn contended(key: &Key) -> Self {
        Self::new(CacheErrorKind::Contended, format!("`{key}` is being loaded by another caller"))
    }

    #[doc(hidden)]
    pub fn load_timed_out(key: &Key, limit: Duration) -> Self {
        let message = format!("the load of `{key}` took longer than {limit:?}");
        Self::new(CacheErrorKind::LoadTimedOut, message)
    }

    /// A load that failed a moment ago, perhaps in another process.
    pub(crate) fn load_failed(key: &Key, cause: FailureCause, said: &str, left: Duration) -> Self {
        let detail = if said.is_empty() { String::new() } else { format!(" ({said})") };
        let text =
            format!("a load of `{key}` {cause}{detail}, and is not tried again for {left:?}");
        Self::new(CacheErrorKind::LoadFailed(cause), text)
    }

    /// A loader of another process said that there is none.
    pub(crate) fn not_found(key: &Key, message: &str) -> Self {
        let detail = if message.is_empty() { String::new() } else { format!(" ({message})") };
        Self::new(CacheErrorKind::NotFound, format!("there is no `{key}`{detail}"))
    }

    pub(crate) fn full(key: &Key, most: usize, what: &str) -> Self {
        let text = format!("no room for `{key}`: {most} {what} already, as many as there may be");
        Self::new(CacheErrorKind::Full, text)
    }

    pub(crate) fn loader_panicked(key: Option<&Key>) -> Self {
        let message = match key {
            Some(key) => format!("the loader panicked on `{key}`"),
            None => "the loader panicked on a request without a key".to_owned(),
        };
        Self::new(CacheErrorKind::LoaderPanicked, message)
    }

    pub(crate) fn load_lost(key: &Key) -> Self {
        let message =
            format!("the load of `{key}` was dropped before it ended (is the runtime going down?)");
        Self::new(CacheErrorKind::LoadLost, message)
    }

    pub(crate) fn key_too_long(key: &Key) -> Self {
        let (length, most) = (key.byte_len(), Key::MAX_BYTES);
        let message = format!("key `{key}` has {length} bytes, more than {most}");
        Self::new(CacheErrorKind::KeyTooLong, message)
    }

    pub(crate) fn no_runtime(key: &Key) -> Self {
        let message = format!("`{key}` cannot be loaded outside of a tokio runtime");
        Self::new(CacheErrorKind::NoRuntime, message)
    }

    pub(crate) fn recursive(key: &Key) -> Self {
        let message =
            format!("the loader of `{key}` asks the cache for its own key: load it otherwise");
        Self::new(CacheErrorKind::Recursive, message)
    }

    pub(crate) fn store(key: &Key, error: &StoreError) -> Self {
        Self::new(CacheErrorKind::Store(error.kind()), format!("`{key}`: {error}"))
            .with_source(error.clone())
    }

    pub(crate) fn too_many_tags(key: &Key, many: &dyn fmt::Display) -> Self {
        Self::new(CacheErrorKind::TooManyTags, format!("`{key}`: {many}"))
    }

    pub(crate) fn not_clearable() -> Self {
        let message = "the layer is not clearable: `clearable()` lets its entries be cleared";
        Self::new(CacheErrorKind::NotClearable, message)
    }

    pub(crate) fn tag(tag: &Tag, error: &StoreError) -> Self {
        Self::new(CacheErrorKind::Store(error.kind()), format!("tag `{tag}`: {error}"))
            .with_source(error.clone())
    }

    /// Makes an error of a cache, for adapters and for tests of error handling. The message must
    /// hold no value and no secret.
    pub fn new(kind: CacheErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into(), source: None }
    }

    /// Adds the cause. Like the message, it must hold no value and no secret.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for CacheError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The kind of a [`CacheError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheErrorKind {
    /// Another caller is loading the key, and the policy is to fail fast.
    Contended,
    /// The caller's [deadline](crate::service::KeyRequest::deadline) has passed, or cannot be met.
    DeadlineExceeded,
    /// The key is longer than [`Key::MAX_BYTES`].
    KeyTooLong,
    /// A bound of this process is reached: [`max_waiters`](crate::service::ReadThroughLayerBuilder::max_waiters),
    /// [`max_flights`](crate::service::ReadThroughLayerBuilder::max_flights) or
    /// [`max_loads`](crate::service::ReadThroughLayerBuilder::max_loads).
    Full,
    /// A load failed a moment ago, perhaps in another process, and the key is in cooldown.
    LoadFailed(FailureCause),
    /// The loader panicked. The panic itself has been reported by the panic hook.
    LoaderPanicked,
    /// The task that ran the load was dropped, as when its runtime shuts down.
    LoadLost,
    /// The load reached [`load_timeout`](crate::service::ReadThroughLayerBuilder::load_timeout) and was dropped.
    LoadTimedOut,
    /// A miss outside of a tokio runtime.
    NoRuntime,
    /// [`clear`](crate::service::Handle::clear) was called on a layer that is not
    /// [`clearable`](crate::service::ReadThroughLayerBuilder::clearable).
    NotClearable,
    /// The loader of another process said that there is no such thing: an error of the class
    /// [`NotFound`](crate::ErrorClass::NotFound).
    NotFound,
    /// A loader asked the cache for the key that it loads. It would wait for itself.
    Recursive,
    /// The store failed.
    Store(StoreErrorKind),
    /// The request has more than [`Tags::MOST`](crate::store::Tags::MOST) tags.
    TooManyTags,
    /// The batch loader gave another number of answers than there were requests.
    WrongCount,
    /// The caller's [wait](crate::Wait) for a load of another caller ran out. The message says what
    /// it waited for: the store, a load in this process, or a lease of another process and whether
    /// that was renewed.
    WaitTimedOut,
}

/// Why a load failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureCause {
    /// The loader gave an error, or an answer that counts as one.
    Error,
    /// It took too long.
    TimedOut,
    /// It panicked.
    Panicked,
}

/// Shown as the predicate of a sentence: the load "gave an error".
impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "gave an error",
            Self::TimedOut => "took too long",
            Self::Panicked => "panicked",
        })
    }
}

/// Why a store operation failed.
///
/// The [`source`](StdError::source) is the error of the driver, if the driver reported one. The
/// message contains what it says.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    is_pending: bool,
    is_of_move: bool,
}

impl StoreError {
    /// Makes an error of a store. The message says what was done and how it failed. It must hold no
    /// value and no secret.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into().into(),
            source: None,
            is_pending: false,
            is_of_move: false,
        }
    }

    /// Adds the cause. Like the message, it must hold no value and no secret.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// Says that the store keeps the invalidation that failed, and repeats it until it succeeds.
    #[must_use]
    pub fn pending(self) -> Self {
        let message = format!("{}; the invalidation is repeated until it succeeds", self.message);
        Self { message: message.into(), is_pending: true, ..self }
    }

    /// Says that the slot of the names is moving to another node of a cluster. Nothing was executed.
    #[must_use]
    pub fn of_move(self) -> Self {
        Self { is_of_move: true, ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether it is of an invalidation that the store [keeps pending](Self::pending).
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Whether the operation failed because its slot [is moving](Self::of_move). It can succeed when
    /// the move has ended.
    pub fn is_of_move(&self) -> bool {
        self.is_of_move
    }
}

/// The options of a store are wrong.
impl From<ConfigError> for StoreError {
    fn from(error: ConfigError) -> Self {
        Self::new(StoreErrorKind::Misconfigured, error.to_string()).with_source(error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The circuit breaker is open: the store has failed several times in a row. The store was not
    /// asked.
    Down,
    /// The store gave a reply that the operation cannot have.
    Malformed,
    /// The options of the store are wrong, or do not fit the server.
    Misconfigured,
    /// The store replied that it is not ready: it is starting, busy, or has lost another server
    /// that it needs.
    NotReady,
    /// The store refused the operation.
    Refused,
    /// The store did not reply in time. Whether the operation happened is unknown.
    TimedOut,
    /// The store could not be reached, or the connection broke. Whether the operation happened is
    /// unknown.
    Unreachable,
    /// The store has no such operation.
    Unsupported,
}
