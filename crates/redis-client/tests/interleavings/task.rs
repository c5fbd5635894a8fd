//! In the place of `std::task` and `tokio::task`; and how a thread waits for a future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use loom::thread::{self, Thread};

use real_std::task::Wake;
pub(crate) use real_std::task::{Context, Poll, Waker};

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

/// Polls a future once, and drops it.
pub(crate) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    pin!(future).poll(&mut Context::from_waker(&waker))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
