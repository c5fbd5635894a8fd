//! Errors that say "there is none", stored like answers.

use std::any::{Any, TypeId};
use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;

use super::many::error::ItemError;
use crate::error::{CacheError, Error};
use crate::key::Key;
use crate::lifetimes::Lifetimes;
use crate::shared_error::SharedError;
use crate::store::{Draft, Entry, Value};

/// An error that says "there is none". Flights and stores treat it as an answer. A process that has
/// not loaded it knows only its text.
#[derive(Clone)]
pub(crate) struct NotFound {
    message: Bytes,
    /// The loader's own error, with its type.
    own: Option<(Arc<dyn StdError + Send + Sync>, TypeId)>,
}

impl NotFound {
    pub(crate) fn new(
        error: Arc<dyn StdError + Send + Sync>,
        made_of: TypeId,
        message: String,
    ) -> Self {
        Self { message: message.into(), own: Some((error, made_of)) }
    }

    /// What an entry holds, if it is of this kind.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        if entry.codec() != CODEC {
            return None;
        }
        let value = entry.value();
        Some(value.decoded_as().cloned().unwrap_or_else(|| {
            let message = value.encoded().clone();
            Self { message, own: None }
        }))
    }

    /// What a store gets of it.
    pub(crate) fn draft(self: Arc<Self>, lifetimes: Lifetimes) -> Draft {
        let bytes = self.message.clone();
        let value = Value::of(bytes, self as Arc<dyn Any + Send + Sync>, WEIGHT);
        Draft::new(value, CODEC, lifetimes)
    }

    /// The error of a caller: the loader's own one, if it is known and of this type.
    pub(crate) fn to_error<E: 'static>(&self, key: &Key) -> Error<E> {
        let fits = |made_of: TypeId| {
            [TypeId::of::<E>(), TypeId::of::<ItemError>()].contains(&made_of)
                || TypeId::of::<E>() == TypeId::of::<ItemError>()
        };
        match &self.own {
            Some((error, made_of)) if fits(*made_of) => {
                Error::Load(SharedError::erased(Arc::clone(error)).not_found())
            }
            _ => Error::Cache(CacheError::not_found(key, &String::from_utf8_lossy(&self.message))),
        }
    }
}

/// The codec id of these entries.
const CODEC: u8 = 63;

/// How many bytes the loader's error is taken to need.
const WEIGHT: usize = 256;
