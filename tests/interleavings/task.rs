//! In the place of `std::task` and `tokio::task`; and how a thread waits for a future.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use loom::thread::{self, Thread};

pub(crate) use real_std::task::{Context, Poll, Wake, Waker};
pub(crate) use real_tokio::task::{Id, try_id};

/// Waits for a future. Loom reports a thread that waits for ever.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// The same, of a function that polls.
pub(crate) fn block_on_poll<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    block_on(poll_fn(poll))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
