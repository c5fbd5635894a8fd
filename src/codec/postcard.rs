//! `Postcard`: a codec that is smaller and faster than JSON.

use super::{Codec, EncodeBuffer, SerdeValue};
use crate::error::BoxError;
use crate::status::CacheStatus;

/// Keeps any [`SerdeValue`] (`Clone + Serialize + DeserializeOwned`), as
/// [postcard](https://docs.rs/postcard): smaller and faster than JSON.
///
/// The bytes do not name the fields. After a change of the type, give it another kind of key: what
/// is stored may be decoded into the wrong fields.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Postcard;

impl<Response: SerdeValue> Codec<Response> for Postcard {
    keeps_answers!();

    fn id(&self) -> u8 {
        5
    }

    fn encode(&self, kept: &Response, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        postcard::to_io(kept, buffer)?;
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        match postcard::take_from_bytes(bytes)? {
            (response, []) => Ok(response),
            _ => Err("more bytes than the answer has".into()),
        }
    }
}
