//! What the attribute expands to.

use std::future::Future;

use tower::Layer;

use super::ByKey;
use super::entry_handle::EntryHandle;
use crate::codec::{Cacheability, Codec, RuledCodec};
use crate::error::BoxError;
use crate::key::Key;
use crate::read_through::answer::AnswerFuture;
use crate::read_through::client::CacheClient;
use crate::read_through::core::Core;
use crate::read_through::layer::ReadThroughLayer;
use crate::read_through::loader_fn::loader_fn;
use crate::read_through::lookup::RequestOptions;
use crate::read_through::many::{BatchFuture, BatchResponse};
use crate::tag::{Tag, Tags};

/// The value and the error of a function's `Result`, by any alias of it.
pub trait FunctionResult {
    type Value;
    type Error;
}

impl<T, E> FunctionResult for Result<T, E> {
    type Value = T;
    type Error = E;
}

/// An answer that may be `None`.
#[diagnostic::on_unimplemented(
    message = "`not_found_ttl` is the lifetime of `None`, and the answer `{Self}` is no `Option`",
    label = "not an `Option`"
)]
pub trait AnswerOption: 'static {
    fn is_there(&self) -> bool;
}

impl<T: 'static> AnswerOption for Option<T> {
    fn is_there(&self) -> bool {
        self.is_some()
    }
}

/// An argument that a function borrows. Each load has a copy of type `O`.
#[diagnostic::on_unimplemented(
    message = "a load may outlive its caller, so it has a copy of `{Self}`, which is not `Clone`",
    label = "cannot be copied for the load",
    note = "derive `Clone` for `{Self}`, or pass an `Arc` of it"
)]
pub trait BorrowedArgument<O> {
    fn copied(&self) -> O;
}

// Otherwise the compiler speaks of `ToOwned`.
#[diagnostic::do_not_recommend]
impl<T: ToOwned<Owned = O> + ?Sized, O> BorrowedArgument<O> for T {
    fn copied(&self) -> O {
        self.to_owned()
    }
}

/// The copy of an argument for a load.
pub fn owned<T: BorrowedArgument<O> + ?Sized, O>(argument: &T) -> O {
    argument.copied()
}

/// The error of a function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a function that is read through a cache: it is no `std::error::Error`",
    label = "not a `std::error::Error`",
    note = "callers in other processes get its text, so it must have one: return a type that implements \
            `std::error::Error + Send + Sync`, or a `Box` of that trait"
)]
pub trait FunctionError: Into<BoxError> + Send + Sync + 'static {}

// Otherwise the compiler speaks of `Into<Box<dyn Error>>`.
#[diagnostic::do_not_recommend]
impl<E: Into<BoxError> + Send + Sync + 'static> FunctionError for E {}

/// A clone of a layer for one call of a function. It shares the loads of the original.
pub fn layer<C>(layer: &ReadThroughLayer<ByKey, C>) -> ReadThroughLayer<ByKey, C> {
    layer.clone()
}

/// A layer of answers that may be `None`.
type OptionalLayer<V, C> = ReadThroughLayer<ByKey, RuledCodec<V, C>>;

/// The same layer, which stores `None` for its `not_found_ttl`.
pub fn optional<V, C>(layer: ReadThroughLayer<ByKey, C>) -> OptionalLayer<V, C>
where
    V: AnswerOption,
    C: Codec<V, Kept = V> + Clone,
{
    layer.classify(|answer: &V| match answer.is_there() {
        true => Cacheability::Keep,
        false => Cacheability::NotFound,
    })
}

/// One call of a function.
pub fn read<T, E, C, F, L>(
    layer: ReadThroughLayer<ByKey, C>,
    key: Key,
    load: F,
) -> AnswerFuture<T, E>
where
    T: Send + 'static,
    C: Codec<T>,
    E: FunctionError,
    F: FnOnce() -> L + Clone + Send + 'static,
    L: Future<Output = Result<T, E>> + Send + 'static,
{
    layer.layer(loader_fn(move |_: Key| load())).request(key).into()
}

/// One call of a function that loads many answers. `named` gives the key of an item, and its tags
/// unless they are the layer's.
pub fn read_many<P, A, E, C, F, L, const TAGS: usize>(
    layer: ReadThroughLayer<ByKey, C>,
    items: Vec<P>,
    named: impl Fn(&P) -> (Key, Option<[Tag; TAGS]>),
    load: F,
) -> BatchFuture<A::Answer, E>
where
    P: Clone + Send + 'static,
    A: BatchResponse<P, E>,
    A::Answer: Send + 'static,
    C: Codec<A::Answer>,
    E: FunctionError,
    F: FnOnce(Vec<P>) -> L + Clone + Send + 'static,
    L: Future<Output = Result<A, E>> + Send + 'static,
{
    let lookup_of = |item: &P| {
        let (key, tags) = named(item);
        let tags = tags.map_or_else(|| layer.core.tags.told(&key), Tags::unbounded);
        RequestOptions::default().tagged(tags).lookup(key)
    };
    CacheClient::new(&layer).request_many(loader_fn(load), items, lookup_of)
}

/// The entry of a call of a function.
pub fn entry<V, C>(layer: ReadThroughLayer<ByKey, C>, key: Key) -> EntryHandle<V>
where
    V: Send + Sync + 'static,
    C: Codec<V, Kept = V>,
{
    let Core { store, policy, codec, errors, tags, loads, statistics } = layer.core;
    let tags_of_key = tags.told(&key);
    let core = Core { store, policy, codec: codec as _, errors, tags, loads, statistics };
    EntryHandle::new(CacheClient::of(core), key, tags_of_key)
}
