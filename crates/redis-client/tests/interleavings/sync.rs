//! In the place of `std::sync` and `tokio::sync`.

pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use real_std::sync::{Arc, PoisonError};

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
}

/// That of tokio. Other threads may run before each step of it.
pub(crate) mod oneshot {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use real_tokio::sync::oneshot::error::RecvError;
    use real_tokio::sync::oneshot::{Receiver as End, Sender as Begin, channel as real_channel};

    pub(crate) struct Sender<T> {
        _sender: Begin<T>,
        steps: Steps,
    }

    pub(crate) struct Receiver<T> {
        receiver: End<T>,
        steps: Steps,
    }

    #[derive(Clone, Default)]
    struct Steps(Arc<AtomicUsize>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = real_channel();
        let steps = Steps::default();
        (Sender { _sender: sender, steps: steps.clone() }, Receiver { receiver, steps })
    }

    impl Steps {
        fn step(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.steps.step();
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, RecvError>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            self.steps.step();
            pin!(&mut self.receiver).poll(context)
        }
    }
}
