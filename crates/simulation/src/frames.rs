//! Frames: where a message of the protocol ends in a stream of bytes.

/// The length of the first command, reply or message of a stream. None if it is not complete.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let count = || std::str::from_utf8(&bytes[1..end - 2]).ok()?.parse::<i64>().ok();
    let parts = match bytes[0] {
        b'$' | b'=' | b'!' => {
            // A length of -1 stands for no value.
            let length = usize::try_from(count()?).map_or(0, |length| length + 2);
            return Some(end + length).filter(|length| *length <= bytes.len());
        }
        b'*' | b'~' | b'>' => count()?,
        b'%' => 2 * count()?,
        _ => return Some(end),
    };
    (0..parts).try_fold(end, |at, _| Some(at + frame_length(&bytes[at..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_its_last_part_does() {
        let frames: [&[u8]; 9] = [
            b"+OK\r\n",
            b":12\r\n",
            b"_\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"$4\r\na\r\nb\r\n",
            b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n",
            b"%1\r\n+server\r\n*2\r\n:1\r\n*0\r\n",
            b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n",
        ];
        for frame in frames {
            assert_eq!(frame_length(&[frame, b"+more"].concat()), Some(frame.len()));
            for length in 0..frame.len() {
                assert_eq!(frame_length(&frame[..length]), None, "{length} of {frame:?}");
            }
        }
    }
}
