//! `Batched`: a batch loader, to be put behind a cache.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::BoxFuture;
use futures_util::FutureExt;
use tower::Service;

use super::answers::Answers;
use super::error::BatchError;
use crate::config_error::{ConfigError, number_within};

/// A loader of many, to be put behind a cache: see
/// [`load_many`](crate::ReadThrough::load_many).
///
/// The loader is a `Service<Vec<Req>>` whose response is [`Answers`]. This is a `Service<Req>`, each
/// call of it a batch of one; so what asks for a single item and what asks for a page share one
/// layer, its keys and its loads.
///
/// Limits on how many calls run at once, and how long they take, go around the loader, inside of
/// this.
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

    /// Sets how many requests one call is given at most. What is more goes into further calls,
    /// which run at the same time.
    ///
    /// Default: 1,000, the longest list in a condition that every common database takes.
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
    B::Response: Answers<Req, B::Error>,
    B::Future: Send + 'static,
    <B::Response as Answers<Req, B::Error>>::Asked: 'static,
{
    type Response = <B::Response as Answers<Req, B::Error>>::Answer;
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
fn alone<T, E>(mut outcomes: Vec<Result<T, E>>) -> Result<T, BatchError<E>> {
    let answered = outcomes.len();
    match (outcomes.pop(), answered) {
        (Some(outcome), 1) => outcome.map_err(failed),
        _ => Err(BatchError::WrongCount { asked: 1, answered }),
    }
}

fn failed<E>(error: E) -> BatchError<E> {
    BatchError::Load(Arc::new(error))
}
