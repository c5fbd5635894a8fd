//! The responses of batch loaders, and which request each answer belongs to.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

use crate::BoxFuture;
use futures_util::FutureExt;
use tower::{Service, ServiceExt};

/// What a batch loader answers: an outcome for each request of the batch.
///
/// | response | the answer to one request | |
/// |---|---|---|
/// | `HashMap<Req, T>`, `BTreeMap<Req, T>` | `Option<T>` | what is not there is `None`, and what was not asked for is not looked at |
/// | `Vec<Result<T, E>>` | `T` | in the order of the requests; another number of them is an error of every one |
///
/// A database gives rows in an order of its own and leaves out those that it does not have, so a
/// map is mostly what fits, and cannot mix answers up. A `Vec` is for sources that answer one by
/// one, and can fail for one request and not for another.
///
/// To be implemented for responses of your own.
pub trait Answers<Req, E>: Sized {
    /// What one request is answered with.
    type Answer;

    /// What has to be known of the requests to tell whose an answer is.
    type Asked: Send;

    /// Notes what has to be known of the requests, before the loader is given them.
    fn asked(requests: &[Req]) -> Self::Asked;

    /// An outcome for each request, in their order.
    fn in_order(self, asked: Self::Asked) -> Vec<Result<Self::Answer, E>>;
}

impl<Req, T, E> Answers<Req, E> for Vec<Result<T, E>> {
    type Answer = T;
    type Asked = ();

    fn asked(_: &[Req]) -> Self::Asked {}

    fn in_order(self, (): ()) -> Self {
        self
    }
}

impl<Req, T, E, H> Answers<Req, E> for HashMap<Req, T, H>
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

impl<Req, T, E> Answers<Req, E> for BTreeMap<Req, T>
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

/// What loads many at once. Implemented for every `Service<Vec<Req>>` whose responses are
/// [`Answers`], and not to be implemented otherwise.
pub trait BatchLoader<Req>: Clone + Send + 'static {
    /// What one request is answered with.
    type Answer: Send + 'static;

    /// The loader's error.
    type Fault: Send + Sync + 'static;

    /// Waits until it is ready, and loads: an outcome for each request, or one error for all.
    #[doc(hidden)]
    fn load(self, requests: Vec<Req>) -> BoxFuture<'static, Loaded<Self::Answer, Self::Fault>>;
}

/// What came of a call: an outcome for each of its requests, or one error for all of them.
pub type Loaded<T, E> = Result<Vec<Result<T, E>>, E>;

impl<B, Req> BatchLoader<Req> for B
where
    B: Service<Vec<Req>> + Clone + Send + 'static,
    B::Response: Answers<Req, B::Error>,
    B::Future: Send,
    B::Error: Send + Sync + 'static,
    <B::Response as Answers<Req, B::Error>>::Answer: Send + 'static,
    <B::Response as Answers<Req, B::Error>>::Asked: Send + 'static,
    Req: Send + 'static,
{
    type Answer = <B::Response as Answers<Req, B::Error>>::Answer;
    type Fault = B::Error;

    fn load(self, requests: Vec<Req>) -> BoxFuture<'static, Loaded<Self::Answer, Self::Fault>> {
        let asked = B::Response::asked(&requests);
        let response = self.oneshot(requests);
        async move { Ok(response.await?.in_order(asked)) }.boxed()
    }
}
