//! Percent-decoding (RFC 3986, section 2.1).

/// Decodes an escaped text to bytes. A plus sign becomes `plus`.
pub(super) fn unescaped(text: &str, plus: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    while let Some((&first, rest)) = left.split_first() {
        let escaped = rest.get(..2).filter(|_| first == b'%').and_then(byte);
        left = if escaped.is_some() { &rest[2..] } else { rest };
        bytes.push(escaped.unwrap_or(if first == b'+' { plus } else { first }));
    }
    bytes
}

fn byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u8::from_str_radix(digits, 16).ok()
}
