//! In the place of `std::sync` and `tokio::sync`.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use real_std::sync::{Arc, PoisonError};

use self::atomic::{AtomicUsize, Ordering};

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
}

/// That of tokio. Other threads may run before each step of it.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    notify: real_tokio::sync::Notify,
    steps: AtomicUsize,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_one(&self) {
        self.step();
        self.notify.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.step();
        self.notify.notify_waiters();
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        self.step();
        Notified { notified: Box::pin(self.notify.notified()), notify: self }
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) struct Notified<'a> {
    notified: Pin<Box<real_tokio::sync::futures::Notified<'a>>>,
    notify: &'a Notify,
}

impl Notified<'_> {
    pub(crate) fn enable(mut self: Pin<&mut Self>) -> bool {
        self.notify.step();
        self.notified.as_mut().enable()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.notify.step();
        self.notified.as_mut().poll(context)
    }
}

/// That of tokio. Other threads may run before each step of it.
pub(crate) mod oneshot {
    use super::{AtomicUsize, Context, Future, Ordering, Pin, Poll, pin};
    use real_std::sync::Arc;
    use real_tokio::sync::oneshot::error::RecvError;
    use real_tokio::sync::oneshot::{Receiver as End, Sender as Begin, channel as real_channel};

    pub(crate) struct Sender<T>(Begin<T>, Steps);

    pub(crate) struct Receiver<T>(End<T>, Steps);

    #[derive(Clone, Default)]
    struct Steps(Arc<AtomicUsize>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let ((sender, receiver), steps) = (real_channel(), Steps::default());
        (Sender(sender, steps.clone()), Receiver(receiver, steps))
    }

    impl Steps {
        fn step(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl<T> Sender<T> {
        pub(crate) fn send(self, value: T) -> Result<(), T> {
            self.1.step();
            self.0.send(value)
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            self.1.step();
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, RecvError>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            self.1.step();
            pin!(&mut self.0).poll(context)
        }
    }
}
