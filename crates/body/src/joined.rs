//! `JoinedFrames`: the frames of a body as one buffer.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// The data that was read of a body. Frames are joined as they come, so that many small frames take
/// no more memory than a few times their data.
#[derive(Debug, Default)]
pub(super) struct JoinedFrames {
    /// All data, while it is a single frame.
    first: Bytes,
    /// All data, once there are several frames.
    all: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl JoinedFrames {
    /// Adds a frame of data or of trailer fields. `in_all` is how many bytes are expected in total, or
    /// zero if that is unknown.
    pub(super) fn add(&mut self, frame: Frame<Bytes>, in_all: usize) {
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => self.push(data, in_all),
            Err(Ok(more)) => self.trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
    }

    /// Adds a frame of data.
    pub(super) fn push(&mut self, data: Bytes, in_all: usize) {
        if self.is_empty() {
            self.first = data;
        } else if !data.is_empty() {
            if self.all.is_empty() {
                self.all.reserve(in_all.max(self.first.len() + data.len()));
                self.all.extend_from_slice(&std::mem::take(&mut self.first));
            }
            self.all.extend_from_slice(&data);
        }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    /// Whether there are no bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All data so far.
    pub(super) fn data(&self) -> &[u8] {
        if self.all.is_empty() { &self.first } else { &self.all }
    }

    /// The trailer fields.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// All data, without a copy if there was only one frame.
    pub(super) fn into_bytes(mut self) -> Bytes {
        if self.all.is_empty() {
            return self.first;
        }
        self.all.shrink_to_fit();
        Bytes::from(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn joined(parts: &[&'static str], in_all: usize) -> Bytes {
        let mut joined = JoinedFrames::default();
        parts.iter().for_each(|part| joined.push(Bytes::from_static(part.as_bytes()), in_all));
        assert_eq!(joined.len(), parts.concat().len());
        joined.into_bytes()
    }

    #[test]
    fn all_frames_are_joined_in_their_order() {
        for in_all in [0, 4, 100] {
            assert_eq!(joined(&["ab", "", "cd"], in_all), "abcd");
            assert_eq!(joined(&["", "abcd", ""], in_all), "abcd");
            assert_eq!(joined(&["a", "b", "c", "d"], in_all), "abcd");
            assert_eq!(joined(&[], in_all), "");
        }
    }

    #[test]
    fn one_frame_is_not_copied() {
        let mut joined = JoinedFrames::default();
        let frame = Bytes::from_static(b"abcd");
        joined.push(frame.clone(), 0);
        joined.push(Bytes::new(), 0);
        assert_eq!(joined.into_bytes().as_ptr(), frame.as_ptr());
    }

    #[test]
    fn small_frames_take_at_most_a_few_times_the_memory_of_their_data() {
        let held = |frame: &'static [u8]| {
            let used = allocation_counter::measure(|| {
                let mut joined = JoinedFrames::default();
                (0..MIB).for_each(|_| joined.push(Bytes::from_static(frame), 0));
                drop(joined.into_bytes());
            });
            used.bytes_max
        };
        assert_eq!(held(b""), 0);
        assert!(held(b"a") <= 4 * MIB as u64, "{}", held(b"a"));
    }
}
