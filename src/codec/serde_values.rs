//! Codecs for what serde can encode: `Json`, the default, and `Postcard`, which is smaller and faster.

use std::io::Write as _;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fingerprint::Fingerprint;
use super::{Codec, EncodeBuffer, SerdeValue};
use crate::error::BoxError;
use crate::status::CacheStatus;

/// Keeps any [`SerdeValue`] (`Clone + Serialize + DeserializeOwned`): as JSON where JSON keeps it, else as
/// [postcard](https://docs.rs/postcard). The default.
///
/// JSON can be read by people, and fields are found by their names, so values survive fields that come
/// and go with a `#[serde(default)]`. But it makes `None` of `Some(None)`, `Some(())` and
/// `Some(NaN)`, has no `NaN`, no keys that are tuples, and four bytes for one of a `Vec<u8>`.
/// Self-describing binary formats (MessagePack, CBOR) lose `Some(None)` as well.
///
/// So these values, those with more than 64 bytes as `u8`, those nested deeper than 60 levels and those
/// too large as JSON are stored as a zero byte, a hash of the value and of its names, and postcard. A value
/// that does not have this hash when it is read, because the type has changed since, is a miss.
///
/// What neither keeps, such as a map with numbers as keys in a `#[serde(flatten)]`, is not stored: see
/// [`Codec::verify`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Json;

impl<Response: SerdeValue> Codec<Response> for Json {
    keeps_answers!();

    fn id(&self) -> u8 {
        1
    }

    fn encode(&self, kept: &Response, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        let fingerprint = Fingerprint::of(kept);
        let json = match &fingerprint {
            Some(value) if !value.is_json() => Err("JSON has no form for it".into()),
            _ => serde_json::to_writer(&mut *buffer, kept).map_err(BoxError::from),
        };
        json.or_else(|error| {
            let Some(Fingerprint { hash, .. }) = fingerprint else { return Err(error) };
            buffer.clear();
            buffer.write_all(&[BINARY])?;
            buffer.write_all(&hash.to_le_bytes())?;
            write_postcard(kept, buffer).map_err(|_| error)?;
            let decoded: Result<Response, _> = self.decode(&buffer.bytes);
            decoded.map(drop)
        })
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        let Some(([BINARY, hash @ ..], bytes)) = bytes.split_first_chunk::<9>() else {
            return Ok(serde_json::from_slice(bytes)?);
        };
        let value = read_postcard(bytes)?;
        match Fingerprint::of(&value) {
            Some(it) if it.hash == u64::from_le_bytes(*hash) => Ok(value),
            _ => Err("the bytes are of another type".into()),
        }
    }

    fn verify(&self, kept: &Response, encoded: &[u8]) -> Result<(), BoxError> {
        Fingerprint::compare(kept, &Codec::<Response>::decode(self, encoded)?)
    }
}

/// The first byte of what is not JSON, and the first of none that is.
const BINARY: u8 = 0;

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
        Ok(write_postcard(kept, buffer)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        read_postcard(bytes)
    }

    fn verify(&self, kept: &Response, encoded: &[u8]) -> Result<(), BoxError> {
        Fingerprint::compare(kept, &read_postcard(encoded)?)
    }
}

fn write_postcard<T: Serialize>(value: &T, buffer: &mut EncodeBuffer) -> postcard::Result<()> {
    postcard::to_io(value, buffer).map(drop)
}

fn read_postcard<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BoxError> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err("more bytes than the answer has".into()),
    }
}
