//! A codec that counts, and fails where the test says.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bellwether::CacheStatus;
use bellwether::codec::{Codec, EncodeBuffer};
use tower::BoxError;

/// Encodes numbers as text.
#[derive(Clone, Debug)]
pub struct Text {
    faults: Faults,
    decoded: Arc<AtomicUsize>,
}

/// The faults of a codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// It can do everything.
    None,
    /// Its bytes are a KiB long.
    Long,
    /// An answer is not turned into bytes.
    FailsToEncode,
    /// Bytes are turned into a panic.
    PanicsInDecode,
    /// An answer is turned into a panic, and not into bytes.
    PanicsInEncode,
    /// It panics as soon as it is given an answer.
    PanicsInKeep,
}

impl Text {
    /// How its bytes are marked.
    pub const CODEC: u8 = 77;

    /// A codec with these faults.
    pub fn new(faults: Faults) -> Self {
        Self { faults, decoded: Arc::default() }
    }

    /// How often something was decoded.
    pub fn decoded(&self) -> usize {
        self.decoded.load(SeqCst)
    }

    fn panics_in(&self, fault: Faults) {
        assert_ne!(self.faults, fault, "scripted");
    }
}

impl Codec<usize> for Text {
    type Kept = usize;

    fn id(&self) -> u8 {
        Self::CODEC
    }

    fn keep(&self, response: usize) -> usize {
        self.panics_in(Faults::PanicsInKeep);
        response
    }

    fn restore(&self, kept: &usize, _: &CacheStatus) -> usize {
        *kept
    }

    fn encode(&self, kept: &usize, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        self.panics_in(Faults::PanicsInEncode);
        match self.faults {
            Faults::FailsToEncode => Err("scripted".into()),
            Faults::Long => Ok(write!(room, "{kept:1024}")?),
            _ => Ok(write!(room, "{kept}")?),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<usize, BoxError> {
        self.decoded.fetch_add(1, SeqCst);
        self.panics_in(Faults::PanicsInDecode);
        Ok(std::str::from_utf8(bytes)?.trim().parse()?)
    }
}
