//! `loader_fn`: async functions and closures as loaders.

use std::future::Future;
use std::task::{Context, Poll};

use tower::Service;

/// An async function or closure as a loader. Each load calls a clone of it, so the future may borrow what
/// the closure has captured, which [`tower::service_fn`] does not allow.
pub(crate) fn loader_fn<F, Req, L, R, E>(load: F) -> LoaderFn<F>
where
    F: FnOnce(Req) -> L + Clone,
    L: Future<Output = Result<R, E>>,
{
    LoaderFn(load)
}

/// The loader of [`loader_fn`].
#[derive(Clone, Copy)]
pub(crate) struct LoaderFn<F>(F);

impl<F, Req, L, R, E> Service<Req> for LoaderFn<F>
where
    F: FnOnce(Req) -> L + Clone,
    L: Future<Output = Result<R, E>>,
{
    type Response = R;
    type Error = E;
    type Future = L;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> L {
        (self.0.clone())(request)
    }
}
