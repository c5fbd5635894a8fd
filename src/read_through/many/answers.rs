//! The responses of batch loaders, and which answer belongs to which request.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

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

    /// An outcome for each request, in their order.
    fn in_order(self, requests: &[Req]) -> Vec<Result<Self::Answer, E>>;
}

/// A [`BatchResponse`] with answers of type `V`: what the loader of a cache of such values responds with.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no answers of type `{V}` for keys of type `{Req}`",
    label = "not the response of a batch loader of `{V}`",
    note = "a map leaves keys out, so it is for a cache of `Option` values: `Cache<{Req}, Option<{V}>>`",
    note = "a loader that answers every key responds with `Vec<Result<{V}, Error>>`, in the order of the keys"
)]
pub trait BatchResponseOf<Req, V, E>: BatchResponse<Req, E, Answer = V> {}

// Otherwise the compiler speaks of two types that are not equal.
#[diagnostic::do_not_recommend]
impl<Req, V, E, A: BatchResponse<Req, E, Answer = V>> BatchResponseOf<Req, V, E> for A {}

impl<Req, T, E> BatchResponse<Req, E> for Vec<Result<T, E>> {
    type Answer = T;

    fn in_order(self, _: &[Req]) -> Self {
        self
    }
}

impl<Req: Eq + Hash, T: Clone, E, H: BuildHasher> BatchResponse<Req, E> for HashMap<Req, T, H> {
    type Answer = Option<T>;

    fn in_order(self, requests: &[Req]) -> Vec<Result<Option<T>, E>> {
        requests.iter().map(|request| Ok(self.get(request).cloned())).collect()
    }
}

impl<Req: Ord, T: Clone, E> BatchResponse<Req, E> for BTreeMap<Req, T> {
    type Answer = Option<T>;

    fn in_order(self, requests: &[Req]) -> Vec<Result<Option<T>, E>> {
        requests.iter().map(|request| Ok(self.get(request).cloned())).collect()
    }
}
