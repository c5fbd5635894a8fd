//! `Batched`: a batch loader behind a cache.

use std::task::{Context, Poll};

use crate::box_future::BoxFuture;
use futures_util::FutureExt;
use tower::Service;

use super::answers::BatchResponse;
use super::error::BatchError;
use crate::config_error::{ConfigError, number_within};
use crate::error::BoxError;
use crate::shared_error::SharedError;

/// A batch loader as the loader of a cache: see [`load_many`](crate::ReadThrough::load_many).
///
/// The loader is a `Service<Vec<Req>>` whose response is [`BatchResponse`]. `Batched` is a
/// `Service<Req>`, and each call of it is a batch of one. So callers of one item and callers of a
/// page share one layer, its keys and its loads.
///
/// To limit how many calls run at once or how long they take, wrap the loader before it goes in
/// here.
#[derive(Clone, Debug)]
pub struct Batched<B> {
    loader: B,
    most: usize,
}

impl<B> Batched<B> {
    /// Wraps a loader.
    pub fn new(loader: B) -> Self {
        Self { loader, most: 1_000 }
    }

    /// Sets how many requests one call gets at most. Further requests go into further calls, which
    /// run at the same time.
    ///
    /// Default: 1,000, the longest `IN (..)` list that every common database accepts.
    ///
    /// # Errors
    /// If it is zero, or more than 1,000,000.
    pub fn at_most(mut self, most: usize) -> Result<Self, ConfigError> {
        self.most = number_within("batch size", most, 1, 1_000_000)?;
        Ok(self)
    }

    /// The loader.
    pub fn get_ref(&self) -> &B {
        &self.loader
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }
}

impl<B, Req> Service<Req> for Batched<B>
where
    B: Service<Vec<Req>>,
    B::Response: BatchResponse<Req, B::Error>,
    B::Error: Into<BoxError>,
    B::Future: Send + 'static,
    <B::Response as BatchResponse<Req, B::Error>>::Asked: 'static,
{
    type Response = <B::Response as BatchResponse<Req, B::Error>>::Answer;
    type Error = BatchError<B::Error>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.loader.poll_ready(cx).map_err(failed)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let requests = vec![request];
        let asked = B::Response::asked(&requests);
        let response = self.loader.call(requests);
        async move { alone(response.await.map_err(failed)?.in_order(asked)) }.boxed()
    }
}

/// The outcome of a batch of one.
fn alone<T, E: Into<BoxError>>(mut outcomes: Vec<Result<T, E>>) -> Result<T, BatchError<E>> {
    let answered = outcomes.len();
    match (outcomes.pop(), answered) {
        (Some(outcome), 1) => outcome.map_err(failed),
        _ => Err(BatchError::WrongCount { asked: 1, answered }),
    }
}

fn failed<E: Into<BoxError>>(error: E) -> BatchError<E> {
    BatchError::Load(SharedError::new(error))
}
