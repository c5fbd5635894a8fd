//! What a program says about its loader's errors.

use std::any::{Any, TypeId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{BoxError, Error};
use crate::error_class::ErrorClass;
use crate::shared_error::SharedError;

/// What a program says about its loader's errors.
#[derive(Clone, Default)]
pub(crate) struct ErrorRules {
    /// The text of an error for other processes. `None` for an error of an unexpected type.
    pub(crate) describe: Option<Arc<ErrorRule<Option<String>>>>,
    /// The class of an error. `None` for an error of an unexpected type.
    pub(crate) classify: Option<Arc<ErrorRule<Option<ErrorClass>>>>,
}

/// A function of the program over an error.
pub(crate) type ErrorRule<T> = dyn Fn(AnyError<'_>) -> T + Send + Sync;

/// An error of any type.
pub(crate) type AnyError<'a> = &'a (dyn Any + Send + Sync);

/// What the rules of a program say about one error.
#[derive(Clone, Debug)]
pub(crate) struct ErrorFacts {
    /// The text for other processes. Empty unless the layer describes failures.
    pub(crate) message: String,
    pub(crate) class: ErrorClass,
    /// The type of the loader's error.
    pub(crate) made_of: TypeId,
}

impl ErrorFacts {
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self.class, ErrorClass::NotFound | ErrorClass::NotFoundFor(_))
    }
}

impl ErrorRules {
    /// What the rules say about an error. The rules are code of the program: one that panics says
    /// nothing.
    pub(crate) fn facts<E: Send + Sync + 'static>(&self, error: &E) -> ErrorFacts {
        let describe = || self.describe.as_ref()?(error);
        let classify = || self.classify.as_ref()?(error);
        ErrorFacts {
            message: catch_unwind(AssertUnwindSafe(describe)).ok().flatten().unwrap_or_default(),
            class: catch_unwind(AssertUnwindSafe(classify)).ok().flatten().unwrap_or_default(),
            made_of: TypeId::of::<E>(),
        }
    }

    /// The error of a caller that loaded individually.
    pub(crate) fn error<E>(&self, error: E) -> Error<E>
    where
        E: Into<BoxError> + Send + Sync + 'static,
    {
        let is_not_found = self.facts(&error).is_not_found();
        let error = SharedError::new(error);
        Error::Load(if is_not_found { error.not_found() } else { error })
    }
}
