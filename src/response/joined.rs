//! The data of a body that was read in frames.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http_body::Frame;

/// All data of some frames.
pub(crate) fn joined(frames: VecDeque<Frame<Bytes>>, length: usize) -> Bytes {
    let mut parts = frames.into_iter().filter_map(|frame| frame.into_data().ok());
    let first = parts.next().unwrap_or_default();
    if first.len() == length {
        return first;
    }
    let mut all = BytesMut::with_capacity(length);
    all.extend_from_slice(&first);
    parts.for_each(|part| all.extend_from_slice(&part));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(parts: &[&'static str]) -> VecDeque<Frame<Bytes>> {
        parts.iter().map(|part| Frame::data(Bytes::from_static(part.as_bytes()))).collect()
    }

    #[test]
    fn all_frames_are_joined_in_their_order() {
        assert_eq!(joined(frames(&["ab", "", "cd"]), 4), "abcd");
        assert_eq!(joined(frames(&["abcd"]), 4), "abcd");
        assert_eq!(joined(frames(&[]), 0), "");
    }
}
