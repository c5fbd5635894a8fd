//! Errors: the loader's fault, or ours.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;

/// An error of any type, as Tower's middleware gives it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a request was not answered: the loader's fault or ours.
#[derive(Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "it is the loader's fault or ours, and there is no third"
)]
pub enum Error<E> {
    /// The loader failed. All callers that waited for that load get the same error.
    Load(Arc<E>),
    /// The cache could not answer, and its policy does not let it go around itself.
    Cache(CacheError),
}

impl<E> Error<E> {
    /// The loader's own error, if it is its fault.
    pub fn load(&self) -> Option<&E> {
        match self {
            Self::Load(error) => Some(error),
            Self::Cache(_) => None,
        }
    }

    /// Our error, if it is ours.
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
            Self::Load(error) => Self::Load(Arc::clone(error)),
            Self::Cache(error) => Self::Cache(error.clone()),
        }
    }
}

impl<E> From<CacheError> for Error<E> {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(f, "loader failed: {error}"),
            Self::Cache(error) => error.fmt(f),
        }
    }
}

/// The loader's error is in the message, not behind [`source`](StdError::source): that would ask
/// for `E: std::error::Error`, which tower's own `BoxError` is not. [`Error::load`] gives it whole.
impl<E: fmt::Debug + fmt::Display> StdError for Error<E> {}

/// Why the cache could not answer.
///
/// Opaque, so that what it carries can grow; a program asks [`kind`](CacheError::kind). Messages
/// name the key by its kind and digest and never hold a value or a secret.
#[derive(Clone, Debug)]
pub struct CacheError {
    kind: CacheErrorKind,
    message: Arc<str>,
}

impl CacheError {
    /// What went wrong.
    pub fn kind(&self) -> CacheErrorKind {
        self.kind
    }

    pub(crate) fn contended(key: &Key) -> Self {
        Self::new(CacheErrorKind::Contended, format!("`{key}` is being loaded by another caller"))
    }

    pub(crate) fn load_timed_out(key: &Key, limit: Duration) -> Self {
        Self::new(
            CacheErrorKind::LoadTimedOut,
            format!("the load of `{key}` took longer than {limit:?}"),
        )
    }

    /// A load that failed a moment ago, in another process perhaps.
    pub(crate) fn load_failed(
        key: &Key,
        cause: FailureCause,
        message: &str,
        left: Duration,
    ) -> Self {
        let said = if message.is_empty() { String::new() } else { format!(" ({message})") };
        Self::new(
            CacheErrorKind::LoadFailed(cause),
            format!("a load of `{key}` {cause}{said}, and is not tried again for {left:?}"),
        )
    }

    pub(crate) fn too_many_loads(key: &Key, most: usize) -> Self {
        Self::full(key, format_args!("{most} loads without a lease are running"))
    }

    pub(crate) fn too_many_waiters(key: &Key, most: usize) -> Self {
        Self::full(key, format_args!("{most} callers wait for it"))
    }

    pub(crate) fn too_many_flights(key: &Key, most: usize) -> Self {
        Self::full(key, format_args!("{most} keys are being loaded"))
    }

    fn full(key: &Key, already: fmt::Arguments<'_>) -> Self {
        Self::new(
            CacheErrorKind::Full,
            format!("no room for `{key}`: {already} already, as many as there may be"),
        )
    }

    pub(crate) fn loader_panicked(key: &Key) -> Self {
        Self::new(CacheErrorKind::LoaderPanicked, format!("the loader panicked on `{key}`"))
    }

    pub(crate) fn load_lost(key: &Key) -> Self {
        Self::new(
            CacheErrorKind::LoadLost,
            format!("the load of `{key}` was dropped before it ended (is the runtime going down?)"),
        )
    }

    pub(crate) fn other_type(key: &Key) -> Self {
        Self::new(
            CacheErrorKind::OtherType,
            format!("`{key}` was loaded as another type: two kinds of answer share one key"),
        )
    }

    pub(crate) fn key_too_long(key: &Key) -> Self {
        let (length, most) = (key.byte_len(), Key::MAX_BYTES);
        Self::new(
            CacheErrorKind::KeyTooLong,
            format!("key `{key}` has {length} bytes, more than {most}"),
        )
    }

    pub(crate) fn no_runtime(key: &Key) -> Self {
        Self::new(
            CacheErrorKind::NoRuntime,
            format!("`{key}` cannot be loaded outside of a tokio runtime"),
        )
    }

    pub(crate) fn store(key: &Key, error: &StoreError) -> Self {
        Self::new(CacheErrorKind::Store(error.kind()), format!("`{key}`: {error}"))
    }

    /// An error of a cache, for adapters and for tests of programs that handle one. The message must
    /// hold no value and no secret.
    pub fn new(kind: CacheErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into() }
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for CacheError {}

/// What kind of [`CacheError`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheErrorKind {
    /// Another caller is loading the key, and the policy is to fail fast.
    Contended,
    /// The answer was not there by the caller's [deadline](crate::Lookup::deadline), or cannot be.
    DeadlineExceeded,
    /// The key is longer than [`Key::MAX_BYTES`].
    KeyTooLong,
    /// A bound on what may be under way in this process is reached, and this request is more.
    Full,
    /// A load failed a moment ago, in another process perhaps, and is not tried again yet.
    LoadFailed(FailureCause),
    /// The loader panicked. The panic itself has been reported by the panic hook.
    LoaderPanicked,
    /// The task that ran the load was dropped, as when its runtime shuts down.
    LoadLost,
    /// The load was ended because it reached the hard limit on one load.
    LoadTimedOut,
    /// A miss was met outside of a tokio runtime.
    NoRuntime,
    /// Two kinds of answer share one key in one layer.
    OtherType,
    /// The store failed.
    Store(StoreErrorKind),
    /// The caller's [wait](crate::Wait) for a load of another caller ran out. The message says what it
    /// waited for: the store, a load in this process, or a lease of another process and whether
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

/// As in: the load gave an error.
impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "gave an error",
            Self::TimedOut => "took too long",
            Self::Panicked => "panicked",
        })
    }
}

/// Why a store did not do what it was asked to.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: Arc<str>,
}

impl StoreError {
    /// An error of a store. The message says what was being done and what came of it, and must
    /// hold no value and no secret.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into() }
    }

    /// What went wrong.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StoreError {}

/// What kind of [`StoreError`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store has failed so often in a row that it is taken to be down. It was not asked.
    Down,
    /// The answer was not one that the operation can have.
    Malformed,
    /// Its settings make no sense, or do not fit the server that they lead to.
    Misconfigured,
    /// The store answered that it can do nothing for now: it is starting, or busy, or has lost
    /// another server that it needs.
    NotReady,
    /// The store answered that it will not do it.
    Refused,
    /// The store did not answer within its time. Whether it did it is unknown.
    TimedOut,
    /// The store could not be reached, or the connection broke. Whether it did it is unknown.
    Unreachable,
}
