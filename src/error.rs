//! Errors: the loader's fault, or ours.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;

/// Why a request was not answered: the loader's fault or ours.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// The loader failed. Everybody who waited for that load is given the same error.
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
        Self::new(CacheErrorKind::Contended, format!("`{key}` is being loaded by somebody else"))
    }

    pub(crate) fn load_timed_out(key: &Key, limit: Duration) -> Self {
        Self::new(
            CacheErrorKind::LoadTimedOut,
            format!("the load of `{key}` took longer than {limit:?}"),
        )
    }

    /// A load that failed a moment ago, in another process perhaps.
    pub(crate) fn load_failed(key: &Key, cause: Cause, message: &str, left: Duration) -> Self {
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

    pub(crate) fn new(kind: CacheErrorKind, message: String) -> Self {
        Self { kind, message: message.into() }
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
    /// Somebody else is loading the key, and the policy is to fail fast.
    Contended,
    /// The answer was not there by the caller's [deadline](crate::Ask::by), or cannot be.
    DeadlineExceeded,
    /// The key is longer than [`Key::MAX_BYTES`].
    KeyTooLong,
    /// A bound on what may be under way in this process is reached, and this request is more.
    Full,
    /// A load failed a moment ago, in another process perhaps, and is not tried again yet.
    LoadFailed(Cause),
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
pub enum Cause {
    /// The loader gave an error, or an answer that counts as one.
    Error,
    /// It took too long.
    TimedOut,
    /// It panicked.
    Panicked,
}

/// As in: the load gave an error.
impl fmt::Display for Cause {
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

/// A setting that makes no sense, found where it was given.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share is out of its range.
    Share {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: f64,
        /// The smallest that is accepted.
        least: f64,
        /// The largest that is accepted.
        most: f64,
    },
    /// A duration is out of its range.
    Duration {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: Duration,
        /// The shortest that is accepted.
        least: Duration,
        /// The longest that is accepted.
        most: Duration,
    },
    /// A number is out of its range.
    Number {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: usize,
        /// The smallest that is accepted.
        least: usize,
        /// The largest that is accepted.
        most: usize,
    },
    /// A namespace has other characters than `A-Z a-z 0-9 _ . -`, or not 1 to 64 of them.
    Namespace {
        /// What was given.
        given: String,
    },
    /// A key of requests makes no sense.
    Key {
        /// What was given.
        given: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An address of a store cannot be read. It is not repeated here, as it may hold a password.
    Url {
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration { setting, given, least, most } => {
                write!(f, "{setting} must be from {least:?} to {most:?}, not {given:?}")
            }
            Self::Share { setting, given, least, most } => {
                write!(f, "{setting} must be from {least} to {most}, not {given}")
            }
            Self::Number { setting, given, least, most } => {
                write!(f, "{setting} must be from {least} to {most}, not {given}")
            }
            Self::Namespace { given } => {
                write!(f, "namespace must be 1 to 64 of `A-Z a-z 0-9 _ . -`, not {given:?}")
            }
            Self::Key { given, reason } => write!(f, "key {given:?}: {reason}"),
            Self::Url { reason } => write!(f, "store url: {reason}"),
        }
    }
}

impl StdError for ConfigError {}

/// Checks a duration that was given for a setting.
pub(crate) fn duration_within(
    setting: &'static str,
    given: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, ConfigError> {
    if given < least || given > most {
        return Err(ConfigError::Duration { setting, given, least, most });
    }
    Ok(given)
}

/// Checks a number that was given for a setting.
pub(crate) fn number_within(
    setting: &'static str,
    given: usize,
    least: usize,
    most: usize,
) -> Result<usize, ConfigError> {
    if given < least || given > most {
        return Err(ConfigError::Number { setting, given, least, most });
    }
    Ok(given)
}

/// Checks a namespace: names of a server, and paths of some, are made of it.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) fn namespace_of(given: &str) -> Result<String, ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let fits = (1..=64).contains(&given.len()) && given.bytes().all(allowed);
    let refused = || ConfigError::Namespace { given: given.chars().take(80).collect() };
    fits.then(|| given.to_owned()).ok_or_else(refused)
}

/// Checks a share or a factor that was given for a setting. What is no number is in no range.
pub(crate) fn share_within(
    setting: &'static str,
    given: f64,
    least: f64,
    most: f64,
) -> Result<f64, ConfigError> {
    if !(least..=most).contains(&given) {
        return Err(ConfigError::Share { setting, given, least, most });
    }
    Ok(given)
}
