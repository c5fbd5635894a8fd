//! `Postcard`: a codec that is smaller and faster than JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fingerprint::Fingerprint;
use super::{Codec, EncodeBuffer, SerdeValue};
use crate::error::BoxError;
use crate::status::CacheStatus;

/// Keeps any [`SerdeValue`] (`Clone + Serialize + DeserializeOwned`), as
/// [postcard](https://docs.rs/postcard): smaller and faster than JSON.
///
/// The bytes do not name the fields. After a change of the type, set another
/// [`version`](crate::CacheBuilder::version): what is stored may be decoded into the wrong fields.
///
/// It cannot decode `#[serde(untagged)]`, `tag = ".."`, `flatten`, `skip_serializing_if`, variants after a
/// skipped one, and `serde_json::Value`. Such values are not stored: see [`Codec::verify`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Postcard;

impl<Response: SerdeValue> Codec<Response> for Postcard {
    keeps_answers!();

    fn id(&self) -> u8 {
        5
    }

    fn encode(&self, kept: &Response, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        Ok(encode(kept, buffer)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        decode(bytes)
    }

    fn verify(&self, kept: &Response, encoded: &[u8]) -> Result<(), BoxError> {
        Fingerprint::compare(kept, &decode(encoded)?)
    }
}

pub(super) fn encode<T: Serialize>(value: &T, buffer: &mut EncodeBuffer) -> postcard::Result<()> {
    postcard::to_io(value, buffer).map(drop)
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BoxError> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err("more bytes than the answer has".into()),
    }
}
