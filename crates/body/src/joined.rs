//! What was read of a body, in however many frames it came.

use bytes::Bytes;

/// What was read of a body. Frames are joined as they come, so that it takes no more room than a
/// few times what they hold, however little that is in each.
#[derive(Debug, Default)]
pub struct JoinedFrames {
    /// All that came, as long as that was one frame.
    first: Bytes,
    /// All that came, as soon as it was more.
    all: Vec<u8>,
}

impl JoinedFrames {
    /// Adds a frame, to be one of so many bytes in all, as far as that is known.
    pub fn push(&mut self, data: Bytes, in_all: usize) {
        if self.len() == 0 {
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
    pub fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    /// All of it: the frame itself, if there was but one.
    pub fn into_bytes(mut self) -> Bytes {
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
    fn frames_take_no_more_room_than_a_few_times_what_they_hold() {
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
