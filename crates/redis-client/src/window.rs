//! The window: how much is under way over a connection at once.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::request::RedisRequest;

/// Bounds what is sent over a connection without a reply yet. The rest waits here, in order. So the queue
/// of a server stays short when a fleet asks for ten thousand keys at once: each connection has its turn
/// soon, and its replies tell that the server works.
#[derive(Debug)]
pub(super) struct Window {
    room: Semaphore,
    /// Of requests that must not wait for others: renewals, and what ends a lease.
    urgent: Semaphore,
}

impl Default for Window {
    fn default() -> Self {
        let [room, urgent] = [ROOM as usize; 2].map(Semaphore::new);
        Self { room, urgent }
    }
}

impl Window {
    /// Waits until there is room for a request, and takes it. None if it is closed, which it never is.
    ///
    /// # Cancel safety
    /// Dropping it gives up the place in the queue.
    pub(super) async fn enter(&self, request: &RedisRequest<'_>) -> Option<SemaphorePermit<'_>> {
        let room = if request.is_urgent { &self.urgent } else { &self.room };
        let needed = u32::try_from(1 + request.byte_len() / UNIT).unwrap_or(ROOM).min(ROOM);
        match room.try_acquire_many(needed) {
            Ok(permit) => Some(permit),
            Err(_) => room.acquire_many(needed).await.ok(),
        }
    }
}

/// How many short requests are under way at once. A server needs about 16 us for a script, so they are half
/// a millisecond of its time, as long as a round trip within a data center takes. With 64 processes, each
/// has a reply every 33 ms. A size that follows the times of replies shrinks when the process itself is
/// busy, and then the process waits for nothing (measured: 4 x 10,000 keys in 20 s in place of 3 s).
const ROOM: u32 = 32;

/// A request takes one more place for so many bytes. So one of half a megabyte is under way alone.
const UNIT: usize = 16 * 1024;
