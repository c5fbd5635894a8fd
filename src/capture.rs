//! Captures: turning an answer into something that can be kept and given out many times.

use std::fmt;
use std::io;

use crate::error::BoxError;
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::status::CacheStatus;
use crate::windows::Windows;

/// Turns an answer of the loader into something that can be kept and given out many times.
///
/// What is [kept](Capture::Kept) is shared: those who waited for one load are given copies made
/// of one value by [`restore`](Capture::restore), and a store within the process keeps that very
/// value, so that a hit there decodes nothing.
pub trait Capture<Response>: Send + Sync + 'static {
    /// What is kept of an answer.
    type Kept: Send + Sync + 'static;

    /// The number of the encoding, stored beside the bytes: an entry of another encoding is a
    /// miss. 1 to 63 are this crate's, 64 to 255 are yours.
    fn codec(&self) -> u8;

    /// Takes from an answer what is to be kept.
    fn keep(&self, response: Response) -> Self::Kept;

    /// Makes an answer of what was kept.
    fn restore(&self, kept: &Self::Kept, status: &CacheStatus) -> Response;

    /// Makes an answer of what nobody else has, as [`restore`](Capture::restore) would. Provided by
    /// that; worth writing where it saves a copy.
    fn give_out(&self, kept: Self::Kept, status: &CacheStatus) -> Response {
        self.restore(&kept, status)
    }

    /// What is to become of an answer. Provided: it is kept, for as long as the layer says.
    fn verdict(&self, _: &Self::Kept) -> Verdict {
        Verdict::Keep
    }

    /// Writes what is kept, for a store outside of the process, into as much room as there is.
    ///
    /// # Errors
    /// If this value cannot be written, or there is not the room; it is then given to who waits for
    /// it, but not stored.
    fn encode(&self, kept: &Self::Kept, room: &mut Room) -> Result<(), BoxError>;

    /// Reads what `encode` wrote.
    ///
    /// # Errors
    /// If the bytes are not what it wrote: that entry counts as a miss.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Kept, BoxError>;

    /// Gives what is kept in the form in which a store within the process holds it beside the bytes
    /// that `encode` wrote. Provided: as it is. Worth writing where it can borrow from those bytes,
    /// so that they are there once, or where it holds on to more memory than its own.
    fn settle(&self, kept: Self::Kept, _encoded: &Bytes) -> Self::Kept {
        kept
    }

    /// How many bytes of memory that form takes beside the encoded ones. A store within the process
    /// counts them. Provided: as many as are encoded.
    fn weight(&self, _kept: &Self::Kept, encoded: &Bytes) -> usize {
        encoded.len()
    }
}

/// What is to become of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is kept, for as long as the layer says.
    Keep,
    /// It is kept for as long as it says itself. Its time to be fresh is shortened by the layer's
    /// jitter.
    KeepFor(Windows),
    /// It says that there is no such thing. It is kept for as long as the layer says for that; by
    /// default it is shared with those who wait for it, and not kept.
    NotFound,
    /// It is for the caller whose load it was, and the next answers are likely to be for one caller
    /// each. Waiters load for themselves, all at once.
    ///
    /// After two such answers in a row, later callers of this process load for themselves without
    /// waiting: at most as many at once as there were such answers in a row, so a key whose answers
    /// are all private queues no caller after its first burst, and an odd answer for a key that is
    /// shared lets no crowd past. It ends with the first answer that may be shared, or when there
    /// was none of this kind for [`not_kept_for`](crate::ReadThroughLayer::not_kept_for).
    Private,
    /// It is for the caller whose load it was, and says nothing of the answers to others. Waiters
    /// load for themselves, and later callers are coalesced as usual. What is kept stays.
    Own,
    /// It counts as a failure, of the source or of this one request. If there is a stale answer to be
    /// given instead, that is given to all. If not, it is given to the caller whose load it was, and
    /// the others load again, with another request; if that load fails too, they share its failure,
    /// and so do later callers for a while.
    Failure,
    /// The same, and it is neither remembered nor replaced by a stale answer.
    Unconfirmed,
}

/// Room for an encoded answer, bounded, so that one that is too large is found out while it is
/// written and not afterwards.
pub struct Room {
    bytes: Vec<u8>,
    most: usize,
    is_over: bool,
}

impl Room {
    /// Room for this many bytes.
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_over: false }
    }

    /// Whether more was to be written than there is room for.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What was written.
    pub fn into_bytes(mut self) -> Bytes {
        // It is kept for long, and grew by doubling.
        self.bytes.shrink_to_fit();
        self.bytes.into()
    }
}

/// Fails when there is no room left.
impl io::Write for Room {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if more.len() > self.most - self.bytes.len() {
            self.is_over = true;
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the answer is too large"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows lengths only.
impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("used", &self.bytes.len()).field("most", &self.most).finish()
    }
}

/// A capture whose verdict is given by a function. Made by
/// [`ReadThroughLayer::judge`](crate::ReadThroughLayer::judge).
#[derive(Clone, Copy)]
pub struct Judged<C, F> {
    capture: C,
    judge: F,
}

impl<C, F> Judged<C, F> {
    /// Captures as `capture` does, and judges by a function of what is kept.
    pub fn new(capture: C, judge: F) -> Self {
        Self { capture, judge }
    }
}

impl<Response, C, F> Capture<Response> for Judged<C, F>
where
    C: Capture<Response>,
    F: Fn(&C::Kept) -> Verdict + Send + Sync + 'static,
{
    type Kept = C::Kept;

    fn codec(&self) -> u8 {
        self.capture.codec()
    }

    fn keep(&self, response: Response) -> C::Kept {
        self.capture.keep(response)
    }

    fn restore(&self, kept: &C::Kept, status: &CacheStatus) -> Response {
        self.capture.restore(kept, status)
    }

    fn give_out(&self, kept: C::Kept, status: &CacheStatus) -> Response {
        self.capture.give_out(kept, status)
    }

    fn verdict(&self, kept: &C::Kept) -> Verdict {
        (self.judge)(kept)
    }

    fn encode(&self, kept: &C::Kept, room: &mut Room) -> Result<(), BoxError> {
        self.capture.encode(kept, room)
    }

    fn decode(&self, bytes: &[u8]) -> Result<C::Kept, BoxError> {
        self.capture.decode(bytes)
    }

    fn settle(&self, kept: C::Kept, encoded: &Bytes) -> C::Kept {
        self.capture.settle(kept, encoded)
    }

    fn weight(&self, kept: &C::Kept, encoded: &Bytes) -> usize {
        self.capture.weight(kept, encoded)
    }
}

impl<C: fmt::Debug, F> fmt::Debug for Judged<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").field("capture", &self.capture).finish_non_exhaustive()
    }
}

/// Keeps any `Clone + Serialize + DeserializeOwned` answer, as JSON. The default.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Json;

impl<Response> Capture<Response> for Json
where
    Response: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Kept = Response;

    fn codec(&self) -> u8 {
        1
    }

    fn keep(&self, response: Response) -> Response {
        response
    }

    fn restore(&self, kept: &Response, _: &CacheStatus) -> Response {
        kept.clone()
    }

    fn give_out(&self, kept: Response, _: &CacheStatus) -> Response {
        kept
    }

    fn encode(&self, kept: &Response, room: &mut Room) -> Result<(), BoxError> {
        Ok(serde_json::to_writer(room, kept)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Response, BoxError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}
