//! A response as it is kept, and its bytes.

use std::fmt;
use std::io::Write;

use bellwether::BoxError;
use bellwether::EncodeBuffer;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A whole response, and what its adapter notes beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptResponse<N> {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
    /// Its trailer fields.
    pub trailers: Option<HeaderMap>,
    /// What the adapter stores beside it.
    pub note: N,
}

/// What stands before the body, in postcard's encoding.
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

/// Why bytes are not a response that may be given out.
#[derive(Debug)]
#[non_exhaustive]
pub enum Undecodable {
    /// Not what was written.
    Damaged(String),
    /// No status that there is.
    Status(u16),
    /// A header field that could not stand in a message.
    Field,
    /// More header fields, or longer ones, than any response that is kept has.
    TooManyFields,
}

impl<N> KeptResponse<N>
where
    N: Serialize + DeserializeOwned,
{
    /// Writes it down.
    ///
    /// # Errors
    /// If there is not the room, or its header fields are more than are kept.
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

    /// Reads what [`encode`](Self::encode) wrote. A process that can write to the store could have
    /// written anything, so nothing gets through that could not have come from a loader.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        Self::borrowing(&Bytes::copy_from_slice(bytes))
    }

    /// The same, with a body and fields that are part of those bytes. What a loader gave may be
    /// part of a connection's buffer, which is several times as large.
    pub fn borrowing(bytes: &Bytes) -> Result<Self, Undecodable> {
        let (head, body): (Head<'_, N>, _) = postcard::take_from_bytes(bytes)
            .map_err(|error| Undecodable::Damaged(error.to_string()))?;
        let status =
            StatusCode::from_u16(head.status).map_err(|_| Undecodable::Status(head.status))?;
        let header_map = |fields| header_map(fields, bytes);
        let headers = header_map(&head.headers)?;
        let trailers = head.trailers.as_ref().map(header_map).transpose()?;
        let body = bytes.slice_ref(body);
        Ok(Self { status, headers, body, trailers, note: head.note })
    }
}

impl<N> KeptResponse<N> {
    /// How many bytes of memory its fields take, beside their values.
    pub fn weight_of_fields(&self) -> usize {
        let maps = [Some(&self.headers), self.trailers.as_ref()];
        maps.into_iter().flatten().map(weight_of).sum()
    }
}

fn weight_of(fields: &HeaderMap) -> usize {
    fields.capacity() * BYTES_OF_A_FIELD
        + fields.keys().map(|name| name.as_str().len()).sum::<usize>()
}

/// How many bytes the table of a `HeaderMap` takes for each field that it has room for: its name
/// and value, their hash, and a place in the index.
const BYTES_OF_A_FIELD: usize = 112;

/// Header fields as they are written, if they are no more than are kept.
fn fields(headers: &HeaderMap) -> Result<HeaderFields<'_>, Undecodable> {
    let fields: HeaderFields<'_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    check(&fields)?;
    Ok(fields)
}

/// Fields of which the values are part of `bytes`.
fn header_map(fields: &HeaderFields<'_>, bytes: &Bytes) -> Result<HeaderMap, Undecodable> {
    check(fields)?;
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Undecodable::Field)?;
        let value = bytes.slice_ref(value);
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| Undecodable::Field)?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn check(fields: &HeaderFields<'_>) -> Result<(), Undecodable> {
    let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    if fields.len() > MAX_FIELDS || bytes > MAX_FIELD_BYTES {
        return Err(Undecodable::TooManyFields);
    }
    Ok(())
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(error) => write!(f, "not a kept response: {error}"),
            Self::Status(status) => write!(f, "there is no status {status}"),
            Self::Field => f.write_str("a header field that could not stand in a message"),
            Self::TooManyFields => write!(
                f,
                "more than {MAX_FIELDS} header fields, or more than {MAX_FIELD_BYTES} bytes of them"
            ),
        }
    }
}

impl std::error::Error for Undecodable {}

/// How many header fields are kept of a response: twice what Varnish accepts.
const MAX_FIELDS: usize = 128;

/// How many bytes of header fields, names and values together.
const MAX_FIELD_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> KeptResponse<u64> {
        let mut headers = HeaderMap::new();
        headers.append("link", HeaderValue::from_static("<a>"));
        headers.append("link", HeaderValue::from_bytes(b"<\xff>").unwrap());
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let body = Bytes::from_static(b"\0body");
        KeptResponse { status: StatusCode::OK, headers, body, trailers: Some(trailers), note: 7 }
    }

    fn encoded(response: &KeptResponse<u64>) -> Bytes {
        let mut room = EncodeBuffer::new(1 << 20);
        response.encode(&mut room).unwrap();
        room.into_bytes()
    }

    fn forged(headers: HeaderFields<'_>) -> Vec<u8> {
        postcard::to_stdvec(&Head { status: 200, headers, trailers: None, note: 7_u64 }).unwrap()
    }

    /// Bytes at rest outlive a deployment: if this fails, the codec has to change.
    #[test]
    fn it_is_written_as_these_very_bytes() {
        let expected =
            b"\xc8\x01\x02\x04link\x03<a>\x04link\x03<\xff>\x01\x01\x04etag\x01x\x07\0body";
        assert_eq!(encoded(&response()), expected[..]);
    }

    #[test]
    fn what_was_written_is_what_is_read() {
        assert_eq!(KeptResponse::decode(&encoded(&response())).unwrap(), response());
    }

    #[test]
    fn no_cut_is_read_as_something_else_than_a_shorter_body() {
        let bytes = encoded(&response());
        let head = bytes.len() - response().body.len();
        for length in 0..head {
            assert!(KeptResponse::<u64>::decode(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn fields_that_would_split_a_message_are_refused() {
        for (name, value) in
            [("a", &b"b\r\nc: d"[..]), ("a", b"b\0"), ("a: b\r\nc", b"d"), ("", b"x")]
        {
            let refused = KeptResponse::<u64>::decode(&forged(vec![(name, value)]));
            assert!(matches!(refused, Err(Undecodable::Field)), "{name:?} {value:?}");
        }
    }

    #[test]
    fn more_fields_than_are_kept_are_refused_both_ways() {
        let refused = KeptResponse::<u64>::decode(&forged(vec![("a", b"b"); 10_000]));
        assert!(matches!(refused, Err(Undecodable::TooManyFields)), "{refused:?}");
        let mut many = response();
        (0..200).for_each(|_| _ = many.headers.append("a", HeaderValue::from_static("b")));
        assert!(many.encode(&mut EncodeBuffer::new(1 << 20)).is_err());
    }

    #[test]
    fn a_status_that_is_none_is_refused() {
        let head = Head { status: 99, headers: Vec::new(), trailers: None, note: 7_u64 };
        let refused = KeptResponse::<u64>::decode(&postcard::to_stdvec(&head).unwrap());
        assert!(matches!(refused, Err(Undecodable::Status(99))), "{refused:?}");
    }
}
