//! `SharedError`: an error of an inner service, shared by all callers that it concerns.

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

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
        E: Into<Box<dyn StdError + Send + Sync>>,
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

    /// The same error, as one of another type.
    pub(crate) fn retyped<T>(self) -> SharedError<T> {
        let Self { error, is_not_found, .. } = self;
        SharedError { error, is_not_found, made_of: PhantomData }
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
