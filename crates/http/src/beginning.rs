//! `Beginning`: how a request begins.

use bellwether_body::CacheBody;
use futures_util::future::BoxFuture;
use http::Response;

use super::exchange::Exchange;

/// A response that needs no load of the cache.
pub(super) type Forwarding<B> = BoxFuture<'static, Response<CacheBody<B>>>;

/// Finds out how a request begins.
pub(super) type Deciding<S, B> = BoxFuture<'static, Beginning<S, B>>;

/// How a request begins.
#[allow(clippy::large_enum_variant, reason = "nearly every request is in the large one")]
pub(super) enum Beginning<S, B> {
    /// It is answered by the cache, or by a load.
    Fetching(Exchange<S>),
    /// It is answered without a load of the cache.
    Forwarding(Forwarding<B>),
    /// It has its response.
    Ready(Response<CacheBody<B>>),
    /// An extractor has to derive its key first, or the store is asked first.
    Deciding(Deciding<S, B>),
}
