//! The window: how much is under way over a connection at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::request::RedisRequest;
use super::silence::LastHeard;

/// Bounds what is sent over a connection without a reply yet. The rest waits here, in order. So the queue
/// of a server stays short when a fleet asks for ten thousand keys at once: each connection has its turn
/// soon, and its replies tell that the server works.
#[derive(Debug)]
pub(super) struct Window {
    room: Semaphore,
    /// Of requests that must not wait for others: renewals, and what ends a lease.
    urgent: Semaphore,
    /// How many keys wait for their replies, here or under way.
    waiting: AtomicU32,
    /// When that was last none before.
    begun: LastHeard,
}

impl Default for Window {
    fn default() -> Self {
        let [room, urgent] = [(ROOM * SHARES) as usize; 2].map(Semaphore::new);
        Self { room, urgent, waiting: AtomicU32::new(0), begun: LastHeard::default() }
    }
}

/// The place of a request, until it has its reply.
pub(super) struct Place<'a> {
    _keys: WaitingKeys<'a>,
    _permit: SemaphorePermit<'a>,
}

struct WaitingKeys<'a> {
    window: &'a Window,
    keys: u32,
}

impl Drop for WaitingKeys<'_> {
    fn drop(&mut self) {
        self.window.waiting.fetch_sub(self.keys, Ordering::Relaxed);
    }
}

impl Window {
    /// Waits until there is room for a request, and takes it. A `trip` is the way to the server and back. If more
    /// than twice as many keys wait as there are places, `is_crowded` is told how many, and since when some do.
    /// There is no place once this is [closed](Self::close).
    ///
    /// # Cancel safety
    /// Dropping it gives up the place in the queue.
    pub(super) async fn enter(
        &self,
        request: &RedisRequest<'_>,
        trip: Duration,
        is_crowded: impl Fn(u32, Instant),
    ) -> Option<Place<'_>> {
        let room = if request.is_urgent { &self.urgent } else { &self.room };
        let more = u32::try_from(request.byte_len() / UNIT).unwrap_or(ROOM).min(ROOM - 1);
        let shares = more * SHARES + SHARES / (trip.as_millis() as u32).clamp(1, SHARES);
        let keys = self.wait_for((1 + more).max(request.key_count()));
        let tell = || {
            let waiting = self.waiting.load(Ordering::Relaxed);
            if waiting > CROWD {
                is_crowded(waiting, self.begun.last());
            }
        };
        tell();
        let permit = match room.try_acquire_many(shares) {
            Ok(permit) => permit,
            Err(_) => {
                let permit = room.acquire_many(shares).await.ok()?;
                tell();
                permit
            }
        };
        Some(Place { _keys: keys, _permit: permit })
    }

    /// No more requests are to be sent: those that wait have no place.
    pub(super) fn close(&self) {
        self.room.close();
        self.urgent.close();
    }

    fn wait_for(&self, keys: u32) -> WaitingKeys<'_> {
        if self.waiting.fetch_add(keys, Ordering::Relaxed) == 0 {
            self.begun.note(Instant::now());
        }
        WaitingKeys { window: self, keys }
    }
}

/// How many short requests are under way at once. A server needs about 16 us for a script, so they are half
/// a millisecond of its time, as long as a round trip within a data center takes. With 64 processes, each
/// has a reply every 33 ms. A size that follows the times of replies shrinks when the process itself is
/// busy, and then the process waits for nothing (measured: 4 x 10,000 keys in 20 s in place of 3 s). So it
/// is larger only for a server that is further away than a millisecond.
const ROOM: u32 = 32;

/// How many times as many are under way to a server that is as many milliseconds away, or further. With 60
/// ms, 32 at once would be 533 requests a second.
const SHARES: u32 = 16;

/// More keys at once are a burst. Fewer come at once, too, when a busy process has been late for a moment.
const CROWD: u32 = 2 * ROOM;

/// A request takes one more place for so many bytes. So one of half a megabyte is under way alone.
const UNIT: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;

    use super::*;

    fn get() -> RedisRequest<'static> {
        RedisRequest::command("GET", [b"name".to_vec()], [], "reading")
    }

    /// The place of a request that has one at once.
    fn place<'a>(window: &'a Window, request: &RedisRequest<'_>) -> Option<Place<'a>> {
        place_far_away(window, request, 0)
    }

    fn place_far_away<'a>(
        window: &'a Window,
        request: &RedisRequest<'_>,
        trip: u64,
    ) -> Option<Place<'a>> {
        window.enter(request, Duration::from_millis(trip), |_, _| ()).now_or_never().flatten()
    }

    #[test]
    fn a_request_waits_while_the_window_is_full_and_an_urgent_one_does_not() {
        let window = Window::default();
        let mut places: Vec<_> = (0..ROOM).map(|_| place(&window, &get())).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(place(&window, &get()).is_none());
        assert!(place(&window, &get().urgent()).is_some());
        places.pop();
        assert!(place(&window, &get()).is_some());
    }

    #[test]
    fn what_waits_leaves_a_window_that_is_closed() {
        let (window, request) = (Window::default(), get());
        let places: Vec<_> = (0..ROOM).map(|_| place(&window, &request)).collect();
        let mut waiting = Box::pin(window.enter(&request, Duration::ZERO, |_, _| ()));
        assert!(waiting.as_mut().now_or_never().is_none());
        window.close();
        assert!(waiting.now_or_never().is_some_and(|place| place.is_none()));
        drop(places);
        assert!(place(&window, &request).is_none() && place(&window, &get().urgent()).is_none());
    }

    #[test]
    fn a_request_of_half_a_megabyte_is_under_way_alone() {
        let window = Window::default();
        let large =
            RedisRequest::command("SET", [b"name".to_vec()], [vec![0; 512 * 1024]], "writing");
        let place_of_large = place(&window, &large);
        assert!(place_of_large.is_some() && place(&window, &get()).is_none());
        drop(place_of_large);
        assert!(place(&window, &get()).is_some());
    }

    #[test]
    fn more_requests_are_under_way_to_a_server_that_is_further_away() {
        for (trip, most) in [(1, ROOM), (2, 2 * ROOM), (16, 16 * ROOM), (60_000, 16 * ROOM)] {
            let window = Window::default();
            let places = (0..most).map(|_| place_far_away(&window, &get(), trip));
            let places: Vec<_> = places.collect();
            assert!(places.iter().all(Option::is_some), "{trip} ms");
            assert!(place_far_away(&window, &get(), trip).is_none(), "{trip} ms");
        }
    }

    #[test]
    fn keys_that_wait_are_told_of_once_they_are_a_crowd() {
        let (window, told) = (Window::default(), Cell::new(0));
        let request = get();
        let mut waiting: Vec<_> = (0..CROWD)
            .map(|_| Box::pin(window.enter(&request, Duration::ZERO, |keys, _| told.set(keys))))
            .collect();
        let places: Vec<_> = waiting.iter_mut().map(FutureExt::now_or_never).collect();
        assert_eq!((told.get(), places.iter().flatten().count()), (0, ROOM as usize));
        assert!(
            window
                .enter(&request, Duration::ZERO, |keys, _| told.set(keys))
                .now_or_never()
                .is_none()
        );
        assert_eq!(told.get(), CROWD + 1);
    }
}
