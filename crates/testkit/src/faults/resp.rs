//! Just enough RESP2 and RESP3 to tell where commands and replies end.

/// Bytes that are no RESP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// A part of a stream that stands for itself, if all of it has come.
pub(super) type Length = Result<Option<usize>, Unreadable>;

const END: &[u8] = b"\r\n";

/// How long the first command is: an array, or a line, as people type it.
pub(super) fn command(bytes: &[u8]) -> Length {
    match bytes.first() {
        Some(b'*') => value(bytes),
        _ => Ok(line_at(bytes, 0).map(|line| line.len() + END.len())),
    }
}

/// How long the first reply or push is. An attribute of a reply (`|`) belongs to it.
pub(super) fn value(bytes: &[u8]) -> Length {
    let mut at = 0;
    let mut missing = 1;
    while missing > 0 {
        let Some(line) = line_at(bytes, at) else {
            return Ok(None);
        };
        let (kind, rest) = line.split_first().ok_or(Unreadable)?;
        at += line.len() + END.len();
        missing -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => at += count(rest)?.map_or(0, |count| count + END.len()),
            b'*' | b'~' | b'>' => missing += count(rest)?.unwrap_or(0),
            b'%' => missing += 2 * count(rest)?.unwrap_or(0),
            b'|' => missing += 2 * count(rest)?.unwrap_or(0) + 1,
            _ => return Err(Unreadable),
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// A push belongs to no command. With RESP2, the messages of a subscription are arrays.
pub(super) fn is_push(value: &[u8]) -> bool {
    let messages: [&[u8]; 2] = [b"*3\r\n$7\r\nmessage\r\n", b"*3\r\n$8\r\nsmessage\r\n"];
    value.first() == Some(&b'>') || messages.iter().any(|head| value.starts_with(head))
}

/// The words of a command, with a space between any two. None at all, if it is an empty line.
pub(super) fn words(command: &[u8]) -> Vec<u8> {
    if command.first() != Some(&b'*') {
        return command.trim_ascii().to_vec();
    }
    let mut words = Vec::new();
    let mut at = line_at(command, 0).map_or(0, <[u8]>::len) + END.len();
    while let Some(line) = line_at(command, at) {
        let begin = at + line.len() + END.len();
        let length = line.get(1..).and_then(|rest| count(rest).ok().flatten()).unwrap_or(0);
        words.push(command.get(begin..begin + length).unwrap_or_default());
        at = begin + length + END.len();
    }
    words.join(&b' ')
}

/// The line that begins there, without its end.
fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let length = rest.windows(END.len()).position(|window| window == END)?;
    Some(&rest[..length])
}

/// How much follows; nothing where there is nothing (`-1`).
fn count(digits: &[u8]) -> Result<Option<usize>, Unreadable> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
    Ok(usize::try_from(number.ok_or(Unreadable)?).ok())
}
