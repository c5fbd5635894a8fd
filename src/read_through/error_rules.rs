//! What a program says about its loader's errors, and what one of them says about the key.

use std::any::type_name;
use std::error::Error as StdError;
use std::io;
use std::iter::successors;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, SharedError};

/// What an error of the loader says about the key. The program decides it by
/// [`classify_error`](crate::service::ReadThroughLayerBuilder::classify_error).
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// use bellwether::{ErrorClass, Key, MemoryStore, ReadThroughLayer};
///
/// let layer = ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &u64| Key::of("item").with(*sku))
///     .ttl(Duration::from_secs(60))
///     .not_found_ttl(Duration::from_secs(5))
///     .classify_error(|error: &Error| match error.kind() {
///         ErrorKind::NotFound => ErrorClass::NotFound,
///         ErrorKind::ConnectionRefused => ErrorClass::SourceFailure,
///         _ => ErrorClass::Failure,
///     })
///     .build()?;
/// # let _ = layer;
/// # Ok::<_, bellwether::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// A failure of the source, or of this one request: only a second one in a row shows which. The
    /// default.
    ///
    /// The caller of that load gets the error. Its waiters share one more load, with the request of
    /// one of them. If that load fails too, the key is in
    /// [cooldown](crate::service::ReadThroughLayerBuilder::failure_windows).
    #[default]
    Failure,
    /// A failure of the source whatever was asked for, such as a refused connection. It needs no
    /// second one: all waiters share it, and the cooldown begins.
    SourceFailure,
    /// There is no such thing, such as a row that was not found. That is an answer and no failure:
    /// it replaces what is stored, and is stored itself for the layer's
    /// [`not_found_ttl`](crate::service::ReadThroughLayerBuilder::not_found_ttl). Callers of all processes get it
    /// as a hit; [`Error::is_not_found`](crate::Error::is_not_found) tells it.
    NotFound,
    /// The same, stored for this long.
    NotFoundFor(Duration),
    /// A failure of this one request, or one that is over at once, such as a conflict of
    /// transactions. The caller of that load gets the error, and its waiters load again at once,
    /// however many such errors there are. Nothing is remembered.
    Retry,
    /// A failure of this load. All its waiters share it, and nothing is remembered: the next caller
    /// loads.
    NotRemembered,
}

/// What a program says about its loader's errors.
#[derive(Clone, Default)]
pub(crate) struct ErrorRules {
    /// The text of an error for other processes.
    pub(crate) describe: Option<ErrorRule<String>>,
    /// The class of an error.
    pub(crate) classify: Option<ErrorRule<ErrorClass>>,
}

/// A function of the program over errors of one type.
#[derive(Clone)]
pub(crate) struct ErrorRule<T> {
    /// What it says of an error. `None` if the error is of another type.
    of: Arc<dyn Fn(AnyError<'_>) -> Option<T> + Send + Sync>,
    made_for: &'static str,
    /// It was asked about an error of its type, or a warning has said that it was not.
    is_settled: Arc<AtomicBool>,
}

/// An error of any type.
pub(crate) type AnyError<'a> = &'a (dyn StdError + 'static);

impl<T> ErrorRule<T> {
    /// A rule for errors of this type.
    pub(crate) fn of<E: StdError + 'static>(f: impl Fn(&E) -> T + Send + Sync + 'static) -> Self {
        Self::new(type_name::<E>(), move |error| error.downcast_ref().map(&f))
    }

    /// A rule for errors of all types.
    pub(crate) fn of_any(rule: impl Fn(AnyError<'_>) -> T + Send + Sync + 'static) -> Self {
        Self::new("any error", move |error| Some(rule(error)))
    }

    fn new(
        made_for: &'static str,
        of: impl Fn(AnyError<'_>) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        Self { of: Arc::new(of), made_for, is_settled: Arc::default() }
    }

    /// What it says of an error, or of the first of its sources that has the type of the rule. A rule is
    /// code of the program: one that panics says nothing.
    fn says<E>(&self, error: &SharedError<E>) -> Option<T> {
        let said = |error| catch_unwind(AssertUnwindSafe(|| (self.of)(error)));
        let said = chain(error).map(said).find(|said| !matches!(said, Ok(None)));
        if !self.is_settled.swap(true, Ordering::Relaxed) && said.is_none() {
            let (rule_for, error) = (self.made_for, type_name::<E>());
            let why = "`classify_error` or `describe_failures` is not asked: it is for another type, which \
                       is not among the sources of this error";
            tracing::warn!(target: "bellwether::load", rule_for, error, "{why}");
        }
        said?.ok().flatten()
    }
}

/// An error and its sources.
fn chain<'a, E>(error: &'a SharedError<E>) -> impl Iterator<Item = AnyError<'a>> {
    successors(Some(&**error as AnyError<'a>), |error: &AnyError<'a>| (*error).source())
}

/// The type of an error, and what kind of I/O error is among its sources. Its text may hold personal data; these
/// are texts of the program.
fn kind_of<E>(error: &SharedError<E>) -> String {
    let name = type_name::<E>();
    match chain(error).find_map(|error| error.downcast_ref::<io::Error>()) {
        Some(error) => format!("{name}: {}", error.kind()),
        None => name.to_owned(),
    }
}

/// What the rules of a program say about one error.
pub(crate) struct ErrorFacts {
    /// The text for other processes.
    pub(crate) message: String,
    pub(crate) class: ErrorClass,
}

impl ErrorFacts {
    fn is_not_found(&self) -> bool {
        matches!(self.class, ErrorClass::NotFound | ErrorClass::NotFoundFor(_))
    }
}

impl ErrorRules {
    /// What the rules say about an error.
    pub(crate) fn facts<E>(&self, error: &SharedError<E>) -> ErrorFacts {
        let message = self.describe.as_ref().and_then(|rule| rule.says(error)).unwrap_or_default();
        let class = self.classify.as_ref().and_then(|rule| rule.says(error)).unwrap_or_default();
        let mut facts = ErrorFacts { message, class };
        if self.describe.is_none() && !facts.is_not_found() {
            facts.message = kind_of(error);
        }
        facts
    }

    /// The error of a caller that loaded individually.
    pub(crate) fn error<E>(&self, error: Error<E>) -> Error<E> {
        match error {
            Error::Load(error) if self.facts(&error).is_not_found() => {
                Error::Load(error.not_found())
            }
            error => error,
        }
    }
}
