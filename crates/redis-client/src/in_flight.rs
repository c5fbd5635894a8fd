//! Requests in flight: what ends the wait for a reply that does not come.
//!
//! A timer per request would cost each of them more than the rest of its bookkeeping. So one task
//! per runtime sleeps until the first deadline of the requests of a connection. It ends when no
//! request is left.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pin_project::{pin_project, pinned_drop};
use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The requests of one connection that wait for their replies.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Held for a few steps, never across an `.await`. No task is woken while it is held.
    table: Mutex<Table>,
    /// Notified of a request whose deadline is before those of all others.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Table {
    requests: Slab<Waiting>,
    /// The runtimes that have a task for the deadlines of their requests, and when it wakes.
    watched: Vec<(Id, Instant)>,
    /// Whether the connection has ended, so that no reply will come.
    has_ended: bool,
}

#[derive(Debug)]
struct Waiting {
    deadline: Instant,
    /// Only the runtime of a request is sure to be polled while the request waits.
    runtime: Id,
    waker: Waker,
}

impl InFlight {
    /// Waits for a reply until the deadline (`TimedOut`), or until the connection ends
    /// (`ConnectionReset`).
    pub(super) fn reply<F: Future>(
        self: &Arc<Self>,
        deadline: Instant,
        reply: F,
    ) -> AwaitedReply<'_, F> {
        AwaitedReply { in_flight: self, deadline, index: None, reply }
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        let mut table = self.table();
        table.has_ended = true;
        let wakers: Vec<_> = table.requests.iter().map(|(_, it)| it.waker.clone()).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Has the request woken when its deadline has passed or the connection ends. False if it has
    /// ended.
    fn wait(self: &Arc<Self>, index: &mut Option<usize>, deadline: Instant, waker: &Waker) -> bool {
        let runtime = Handle::current();
        let id = runtime.id();
        let mut table = self.table();
        if table.has_ended {
            return false;
        }
        let watched = table.watched.iter_mut().find(|(watched, _)| *watched == id);
        let is_watched = watched.is_some();
        let is_earlier = watched.is_some_and(|(_, wakes_at)| {
            let is_earlier = deadline < *wakes_at;
            *wakes_at = deadline.min(*wakes_at);
            is_earlier
        });
        match *index {
            Some(index) => {
                let waiting = &mut table.requests[index];
                waiting.runtime = id;
                waiting.waker.clone_from(waker);
            }
            None => {
                let waiting = Waiting { deadline, runtime: id, waker: waker.clone() };
                *index = Some(table.requests.insert(waiting));
            }
        }
        if !is_watched {
            table.watched.push((id, deadline));
        }
        drop(table);
        if is_earlier {
            self.earlier.notify_waiters();
        }
        if !is_watched {
            // Spawned last: a runtime that has ended drops the task at once, which locks the table.
            runtime.spawn(DeadlineTask { in_flight: Arc::clone(self), runtime: id }.run());
        }
        true
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for a reply.
#[pin_project(PinnedDrop)]
pub(super) struct AwaitedReply<'a, F> {
    in_flight: &'a Arc<InFlight>,
    deadline: Instant,
    /// Its index among the requests, from its first poll on.
    index: Option<usize>,
    #[pin]
    reply: F,
}

impl<F: Future> Future for AwaitedReply<'_, F> {
    type Output = Result<F::Output, io::ErrorKind>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // A reply counts, even if it is late.
        if let Poll::Ready(reply) = this.reply.poll(context) {
            return Poll::Ready(Ok(reply));
        }
        if !this.in_flight.wait(this.index, *this.deadline, context.waker()) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset));
        }
        if *this.deadline <= Instant::now() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut));
        }
        Poll::Pending
    }
}

#[pinned_drop]
impl<F> PinnedDrop for AwaitedReply<'_, F> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        if let Some(index) = this.index.take() {
            let waiting = this.in_flight.table().requests.remove(index);
            // Dropped after the lock: a waker can run code of others.
            drop(waiting);
        }
    }
}

/// Wakes the requests of one runtime whose deadlines have passed.
struct DeadlineTask {
    in_flight: Arc<InFlight>,
    runtime: Id,
}

impl DeadlineTask {
    async fn run(self) {
        loop {
            let earlier = self.in_flight.earlier.notified();
            let Some(next) = self.wake_late() else { return };
            select! {
                () = sleep_until(next) => {}
                () = earlier => {}
            }
        }
    }

    /// Wakes the requests whose deadlines have passed, and returns the first of the others. If
    /// there is none, the next request starts another task.
    fn wake_late(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut table = self.in_flight.table();
        let mut late = Vec::new();
        let mut next: Option<Instant> = None;
        for (_, waiting) in table.requests.iter().filter(|(_, it)| it.runtime == self.runtime) {
            if waiting.deadline <= now {
                late.push(waiting.waker.clone());
            } else {
                next = Some(next.map_or(waiting.deadline, |it| it.min(waiting.deadline)));
            }
        }
        match next {
            Some(next) => table.watched.iter_mut().for_each(|(id, wakes_at)| {
                if *id == self.runtime {
                    *wakes_at = next;
                }
            }),
            None => table.watched.retain(|(id, _)| *id != self.runtime),
        }
        drop(table);
        late.into_iter().for_each(Waker::wake);
        next
    }
}

/// A runtime that ends drops this task, and all that it wakes.
impl Drop for DeadlineTask {
    fn drop(&mut self) {
        self.in_flight.table().watched.retain(|(id, _)| *id != self.runtime);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::join;
    use tokio::time::{sleep, timeout};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(1);
    const TICK: Duration = Duration::from_millis(5);

    #[tokio::test(start_paused = true)]
    async fn each_request_without_a_reply_ends_at_its_own_deadline() {
        let in_flight = Arc::new(InFlight::default());
        let began = Instant::now();
        let late = async |deadline| {
            let reply = in_flight.reply(began + deadline, pending::<()>()).await;
            (reply, began.elapsed() - deadline < TICK)
        };
        let ends = join!(late(TIMEOUT * 2), late(TIMEOUT), late(TIMEOUT * 3));
        let expected = (Err(io::ErrorKind::TimedOut), true);
        assert_eq!(ends, (expected, expected, expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_before_those_of_earlier_requests_is_met() {
        let in_flight = Arc::new(InFlight::default());
        let began = Instant::now();
        let patient = in_flight.reply(began + TIMEOUT * 10, pending::<()>());
        let later = async {
            sleep(TICK).await;
            let reply = in_flight.reply(began + TIMEOUT, pending::<()>()).await;
            (reply, began.elapsed() - TIMEOUT < TICK)
        };
        assert_eq!(
            join!(patient, later),
            (Err(io::ErrorKind::TimedOut), (Err(io::ErrorKind::TimedOut), true))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_counts_even_if_it_is_late() {
        let in_flight = Arc::new(InFlight::default());
        let reply = in_flight.reply(Instant::now() - TIMEOUT, ready(7)).await;
        assert_eq!(reply, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_end_with_the_connection_and_later_ones_at_once() {
        let in_flight = Arc::new(InFlight::default());
        let deadline = Instant::now() + TIMEOUT;
        let request = || in_flight.reply(deadline, pending::<()>());
        let (first, second, ()) = join!(request(), request(), async { in_flight.end() });
        assert_eq!([first, second, request().await], [Err(io::ErrorKind::ConnectionReset); 3]);
        assert!(Instant::now() < deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_requests_that_were_answered_or_dropped() {
        let in_flight = Arc::new(InFlight::default());
        let deadline = Instant::now() + TIMEOUT;
        let answered = in_flight.reply(deadline, sleep(TICK)).await;
        assert_eq!(answered, Ok(()));
        assert!(timeout(TICK, in_flight.reply(deadline, pending::<()>())).await.is_err());
        assert!(in_flight.table().requests.is_empty());
        sleep(TIMEOUT * 2).await;
        assert!(in_flight.table().watched.is_empty());
    }

    #[test]
    fn a_runtime_that_ends_leaves_the_requests_of_another_their_deadlines() {
        let in_flight = Arc::new(InFlight::default());
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_time().start_paused(true).build().expect("a runtime")
        };
        let wait = async || in_flight.reply(Instant::now() + TIMEOUT, pending::<()>()).await;
        let first = runtime();
        assert!(first.block_on(async { timeout(TICK, wait()).await }).is_err());
        drop(first);
        assert!(in_flight.table().watched.is_empty());
        assert_eq!(runtime().block_on(wait()), Err(io::ErrorKind::TimedOut));
    }
}
