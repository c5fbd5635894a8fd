//! `Json`: the default codec.

use super::{Codec, EncodeBuffer, SerdeValue};
use crate::error::BoxError;
use crate::status::CacheStatus;

/// Keeps any [`SerdeValue`] (`Clone + Serialize + DeserializeOwned`), as JSON. The default.
///
/// JSON has no `NaN` and no infinity. A value that holds one is kept as it is in this process; in a shared
/// store it is a miss each time. `Postcard` has both.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Json;

impl<Response: SerdeValue> Codec<Response> for Json {
    keeps_answers!();

    fn id(&self) -> u8 {
        1
    }

    fn encode(&self, kept: &Response, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        Ok(serde_json::to_writer(buffer, kept)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}
