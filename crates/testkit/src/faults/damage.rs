//! Damage to single bytes of what the server sends.

use bellwether::adapter::locked;
use std::sync::{Arc, Mutex};

/// The damage to come, counted over all connections of a proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Damage(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// How many bytes were delivered so far.
    delivered: u64,
    /// Which byte is changed, and which of its bits.
    flips: Vec<(u64, u8)>,
    /// Before which byte the connection ends.
    cut: Option<u64>,
}

impl Damage {
    /// Changes bits of the n-th byte from now on, counted from 0.
    pub(super) fn flip(&self, nth: u64, bits: u8) {
        let mut state = locked(&self.0);
        let at = state.delivered + nth;
        state.flips.push((at, bits));
    }

    /// Lets so many more bytes pass, and then ends the connection.
    pub(super) fn cut_after(&self, bytes: u64) {
        let mut state = locked(&self.0);
        state.cut = Some(state.delivered + bytes);
    }

    pub(super) fn clear(&self) {
        let mut state = locked(&self.0);
        state.flips.clear();
        state.cut = None;
    }

    /// Damages what is about to be delivered, and says whether the connection ends after it.
    pub(super) fn befall(&self, bytes: &mut Vec<u8>) -> bool {
        let mut state = locked(&self.0);
        let begin = state.delivered;
        let end = begin + bytes.len() as u64;
        let cut = state.cut.take_if(|cut| *cut <= end);
        if let Some(cut) = cut {
            bytes.truncate(usize::try_from(cut - begin).expect("less than there are"));
        }
        state.delivered = cut.unwrap_or(end);
        let end = state.delivered;
        state.flips.retain(|(at, bits)| {
            let is_here = (begin..end).contains(at);
            if is_here {
                bytes[usize::try_from(at - begin).expect("less than there are")] ^= bits;
            }
            !is_here
        });
        cut.is_some()
    }
}
