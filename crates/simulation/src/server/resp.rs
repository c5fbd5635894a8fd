//! The protocol of Redis: requests in, replies out, by RESP2 or RESP3.

/// A reply, or a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RespValue {
    Status(String),
    Error(String),
    Int(i64),
    Bytes(Vec<u8>),
    Nil,
    Array(Vec<Self>),
    /// Keys and values by turns.
    Map(Vec<Self>),
    Push(Vec<Self>),
    /// No reply to a command that sends messages of its own.
    Nothing,
}

impl RespValue {
    pub(crate) fn ok() -> Self {
        Self::Status("OK".into())
    }

    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(bytes.as_ref().to_vec())
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, is_resp3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            // A line break would end the reply.
            Self::Error(text) => line(out, b'-', text.replace(['\r', '\n'], " ").as_bytes()),
            Self::Int(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Bytes(bytes) => {
                header(out, b'$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil if is_resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Array(items) => many(out, b'*', items.len(), items, is_resp3),
            Self::Map(items) if is_resp3 => many(out, b'%', items.len() / 2, items, is_resp3),
            Self::Map(items) => many(out, b'*', items.len(), items, is_resp3),
            Self::Push(items) if is_resp3 => many(out, b'>', items.len(), items, is_resp3),
            Self::Push(items) => many(out, b'*', items.len(), items, is_resp3),
            Self::Nothing => {}
        }
    }
}

fn many(out: &mut Vec<u8>, kind: u8, count: usize, items: &[RespValue], is_resp3: bool) {
    header(out, kind, count);
    items.iter().for_each(|item| item.write(is_resp3, out));
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    line(out, kind, count.to_string().as_bytes());
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// The first request of the input, and its length. None if it is not complete.
pub(crate) fn read_request(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = read_count(input, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, header) = read_count(input.get(at..)?, b'$')?;
        let begin = at + header;
        words.push(input.get(begin..begin + length)?.to_vec());
        at = begin + length + 2;
    }
    (at <= input.len()).then_some((words, at))
}

/// A number after a mark, and the length of its line.
fn read_count(input: &[u8], mark: u8) -> Option<(usize, usize)> {
    let end = input.windows(2).position(|bytes| bytes == b"\r\n")?;
    assert_eq!(input[0], mark, "the client sends arrays of strings");
    let number = std::str::from_utf8(&input[1..end]).ok()?.parse().ok()?;
    Some((number, end + 2))
}
