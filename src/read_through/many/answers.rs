//! The responses of batch loaders, and which answer belongs to which request.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

use crate::box_future::BoxFuture;
use crate::error::BoxError;
use futures_util::FutureExt;
use tower::{Service, ServiceExt};

/// What a batch loader answers: an outcome for each request of the batch.
///
/// | response | the answer to one request | |
/// |---|---|---|
/// | `HashMap<Req, T>`, `BTreeMap<Req, T>` | `Option<T>` | a missing key is `None`, and a key that was not requested is ignored |
/// | `Vec<Result<T, E>>` | `T` | in the order of the requests; a wrong number is an error for every request |
///
/// A database returns rows in any order and omits missing ones, so a map usually fits, and it
/// cannot confuse answers. A `Vec` is for sources that answer each request, and may fail for one
/// and not for another.
///
/// Implement it for response types of your own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which answer belongs to which request of type `{Req}`",
    label = "not the response of a batch loader",
    note = "a batch loader responds with `HashMap<Request, Answer>`, `BTreeMap<Request, Answer>`, or \
            `Vec<Result<Answer, Error>>` in the order of the requests"
)]
pub trait BatchResponse<Req, E>: Sized {
    /// The answer to one request.
    type Answer;

    /// What assigns the answers to the requests, such as the requests themselves.
    type Asked: Send;

    /// Takes that from the requests, before the loader gets them.
    fn asked(requests: &[Req]) -> Self::Asked;

    /// An outcome for each request, in their order.
    fn in_order(self, asked: Self::Asked) -> Vec<Result<Self::Answer, E>>;
}

impl<Req, T, E> BatchResponse<Req, E> for Vec<Result<T, E>> {
    type Answer = T;
    type Asked = ();

    fn asked(_: &[Req]) -> Self::Asked {}

    fn in_order(self, (): ()) -> Self {
        self
    }
}

impl<Req, T, E, H> BatchResponse<Req, E> for HashMap<Req, T, H>
where
    Req: Clone + Eq + Hash + Send,
    T: Clone,
    H: BuildHasher,
{
    type Answer = Option<T>;
    type Asked = Vec<Req>;

    fn asked(requests: &[Req]) -> Vec<Req> {
        requests.to_vec()
    }

    fn in_order(self, asked: Vec<Req>) -> Vec<Result<Option<T>, E>> {
        asked.iter().map(|request| Ok(self.get(request).cloned())).collect()
    }
}

impl<Req, T, E> BatchResponse<Req, E> for BTreeMap<Req, T>
where
    Req: Clone + Ord + Send,
    T: Clone,
{
    type Answer = Option<T>;
    type Asked = Vec<Req>;

    fn asked(requests: &[Req]) -> Vec<Req> {
        requests.to_vec()
    }

    fn in_order(self, asked: Vec<Req>) -> Vec<Result<Option<T>, E>> {
        asked.iter().map(|request| Ok(self.get(request).cloned())).collect()
    }
}

/// A loader of many requests at once. Implemented for every `Service<Vec<Req>>` whose responses are
/// [`BatchResponse`]; do not implement it otherwise.
pub trait BatchLoader<Req>: Clone + Send + 'static {
    /// The answer to one request.
    type Answer: Send + 'static;

    /// The loader's error.
    type LoadError: Into<BoxError> + Send + Sync + 'static;

    /// Waits until the service is ready, and loads: an outcome for each request, or one error for
    /// all.
    #[doc(hidden)]
    fn load(
        self,
        requests: Vec<Req>,
    ) -> BoxFuture<'static, BatchResult<Self::Answer, Self::LoadError>>;
}

/// The result of a call: an outcome for each of its requests, or one error for all of them.
pub type BatchResult<T, E> = Result<Vec<Result<T, E>>, E>;

impl<B, Req> BatchLoader<Req> for B
where
    B: Service<Vec<Req>> + Clone + Send + 'static,
    B::Response: BatchResponse<Req, B::Error>,
    B::Future: Send,
    B::Error: Into<BoxError> + Send + Sync + 'static,
    <B::Response as BatchResponse<Req, B::Error>>::Answer: Send + 'static,
    <B::Response as BatchResponse<Req, B::Error>>::Asked: Send + 'static,
    Req: Send + 'static,
{
    type Answer = <B::Response as BatchResponse<Req, B::Error>>::Answer;
    type LoadError = B::Error;

    fn load(
        self,
        requests: Vec<Req>,
    ) -> BoxFuture<'static, BatchResult<Self::Answer, Self::LoadError>> {
        let asked = B::Response::asked(&requests);
        let response = self.oneshot(requests);
        async move { Ok(response.await?.in_order(asked)) }.boxed()
    }
}
