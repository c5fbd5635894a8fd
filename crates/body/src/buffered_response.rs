//! `BufferedResponse`: a complete response, and its encoding.

use std::io::Write;

use bellwether::BoxError;
use bellwether::codec::EncodeBuffer;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A complete response, and what its adapter stores beside it.
#[allow(clippy::exhaustive_structs, reason = "adapters build it, and a response has these parts")]
#[derive(Clone, Debug, PartialEq)]
pub struct BufferedResponse<N> {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its complete body.
    pub body: Bytes,
    /// Its trailer fields.
    pub trailers: Option<HeaderMap>,
    /// What the adapter stores beside it, for example times. `()` for nothing.
    pub note: N,
}

/// What is stored before the body, in postcard's encoding.
#[derive(Serialize, Deserialize)]
struct Head<'a, N> {
    status: u16,
    #[serde(borrow)]
    headers: HeaderFields<'a>,
    #[serde(borrow)]
    trailers: Option<HeaderFields<'a>>,
    note: N,
}

type HeaderFields<'a> = Vec<(&'a str, &'a [u8])>;

impl<N> BufferedResponse<N>
where
    N: Serialize + DeserializeOwned,
{
    /// Encodes the response.
    ///
    /// # Errors
    /// If it does not fit into the buffer, or has more header fields than are stored (128, or 32 KiB
    /// of them).
    pub fn encode(&self, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        let head = Head {
            status: self.status.as_u16(),
            headers: fields(&self.headers)?,
            trailers: self.trailers.as_ref().map(fields).transpose()?,
            note: &self.note,
        };
        postcard::to_io(&head, &mut *room)?;
        Ok(room.write_all(&self.body)?)
    }

    /// Decodes what [`encode`](Self::encode) wrote. The store may hold bytes that another program
    /// wrote, so everything is checked: a message cannot be split by a forged header field.
    ///
    /// # Errors
    /// If the bytes are not a response that [`encode`](Self::encode) could have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, BoxError> {
        Self::borrowing(&Bytes::copy_from_slice(bytes))
    }

    /// As [`decode`](Self::decode), with a body and fields that share those bytes. Use it to replace
    /// what a loader returned: that may be a part of a connection's buffer, which is several times as
    /// large.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn borrowing(bytes: &Bytes) -> Result<Self, BoxError> {
        let (head, body): (Head<'_, N>, _) = postcard::take_from_bytes(bytes)?;
        let status = StatusCode::from_u16(head.status)?;
        let header_map = |fields| header_map(fields, bytes);
        let headers = header_map(&head.headers)?;
        let trailers = head.trailers.as_ref().map(header_map).transpose()?;
        let body = bytes.slice_ref(body);
        Ok(Self { status, headers, body, trailers, note: head.note })
    }
}

impl<N> BufferedResponse<N> {
    /// How many bytes of memory its header fields take, beside their values.
    pub fn weight_of_fields(&self) -> usize {
        let maps = [Some(&self.headers), self.trailers.as_ref()];
        maps.into_iter().flatten().map(weight_of).sum()
    }
}

fn weight_of(fields: &HeaderMap) -> usize {
    fields.capacity() * BYTES_OF_A_FIELD
        + fields.keys().map(|name| name.as_str().len()).sum::<usize>()
}

/// How many bytes the table of a `HeaderMap` takes per field of its capacity: name and value, their
/// hash, and an entry of the index.
const BYTES_OF_A_FIELD: usize = 112;

/// Header fields as they are encoded, if they are within the bounds.
fn fields(headers: &HeaderMap) -> Result<HeaderFields<'_>, BoxError> {
    let fields: HeaderFields<'_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    check(&fields)?;
    Ok(fields)
}

/// Header fields whose values share `bytes`.
fn header_map(fields: &HeaderFields<'_>, bytes: &Bytes) -> Result<HeaderMap, BoxError> {
    check(fields)?;
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        headers.append(name, HeaderValue::from_maybe_shared(bytes.slice_ref(value))?);
    }
    Ok(headers)
}

fn check(fields: &HeaderFields<'_>) -> Result<(), BoxError> {
    let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    if fields.len() > MAX_FIELDS || bytes > MAX_FIELD_BYTES {
        return Err("more or longer header fields than are ever stored".into());
    }
    Ok(())
}

/// How many header fields a stored response may have: twice what Varnish accepts.
const MAX_FIELDS: usize = 128;

/// How many bytes its header fields may have, names and values together.
const MAX_FIELD_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use http::header::{InvalidHeaderName, InvalidHeaderValue};
    use http::status::InvalidStatusCode;

    use super::*;

    fn response() -> BufferedResponse<u64> {
        let mut headers = HeaderMap::new();
        headers.append("link", HeaderValue::from_static("<a>"));
        headers.append("link", HeaderValue::from_bytes(b"<\xff>").unwrap());
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let body = Bytes::from_static(b"\0body");
        BufferedResponse {
            status: StatusCode::OK,
            headers,
            body,
            trailers: Some(trailers),
            note: 7,
        }
    }

    fn encoded(response: &BufferedResponse<u64>) -> Bytes {
        let mut room = EncodeBuffer::new(1 << 20);
        response.encode(&mut room).unwrap();
        room.into_bytes()
    }

    fn forged(headers: HeaderFields<'_>) -> Vec<u8> {
        postcard::to_stdvec(&Head { status: 200, headers, trailers: None, note: 7_u64 }).unwrap()
    }

    /// Stored bytes outlive a deployment: if this fails, the id of the codec has to change.
    #[test]
    fn a_response_is_encoded_as_these_very_bytes() {
        let expected =
            b"\xc8\x01\x02\x04link\x03<a>\x04link\x03<\xff>\x01\x01\x04etag\x01x\x07\0body";
        assert_eq!(encoded(&response()), expected[..]);
    }

    #[test]
    fn an_encoded_response_is_decoded_unchanged() {
        assert_eq!(BufferedResponse::decode(&encoded(&response())).unwrap(), response());
    }

    #[test]
    fn a_truncated_head_is_never_decoded() {
        let bytes = encoded(&response());
        let head = bytes.len() - response().body.len();
        for length in 0..head {
            assert!(BufferedResponse::<u64>::decode(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn fields_that_would_split_a_message_are_rejected() {
        for (name, value) in
            [("a", &b"b\r\nc: d"[..]), ("a", b"b\0"), ("a: b\r\nc", b"d"), ("", b"x")]
        {
            let refused = BufferedResponse::<u64>::decode(&forged(vec![(name, value)]));
            let error = refused.unwrap_err();
            let is_refused = error.is::<InvalidHeaderName>() || error.is::<InvalidHeaderValue>();
            assert!(is_refused, "{name:?} {value:?} {error}");
        }
    }

    #[test]
    fn too_many_fields_are_neither_encoded_nor_decoded() {
        let refused = BufferedResponse::<u64>::decode(&forged(vec![("a", b"b"); 10_000]));
        assert!(refused.unwrap_err().to_string().contains("header fields"));
        let mut many = response();
        (0..200).for_each(|_| _ = many.headers.append("a", HeaderValue::from_static("b")));
        assert!(many.encode(&mut EncodeBuffer::new(1 << 20)).is_err());
    }

    #[test]
    fn the_error_of_damaged_bytes_is_the_one_of_the_decoder() {
        let error = BufferedResponse::<u64>::decode(b"\xff").unwrap_err();
        assert!(error.is::<postcard::Error>(), "{error}");
    }

    #[test]
    fn an_invalid_status_is_rejected() {
        let head = Head { status: 99, headers: Vec::new(), trailers: None, note: 7_u64 };
        let refused = BufferedResponse::<u64>::decode(&postcard::to_stdvec(&head).unwrap());
        assert!(refused.unwrap_err().is::<InvalidStatusCode>());
    }
}
