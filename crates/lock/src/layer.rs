//! `LockLayer`: runs every call of a service under a lock.

use std::task::{Context, Poll};

use bellwether::{BoxError, Key, SharedError};
use futures_util::future::BoxFuture;
use tower::{Layer, Service, ServiceExt};

use super::locked_error::LockedError;
use super::{Lock, Locks};

/// Runs every call of a service under a lock: one call at a time for each key, in the whole fleet.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use bellwether_lock::{LocalLock, LockLayer, LockStatus, LockWait, Locks};
/// use bellwether::Key;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// struct Deduct { warehouse: String, sku: u64, count: u32 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = Locks::new(LocalLock::new()).wait(LockWait::at_most(Duration::from_secs(2)));
/// let layer = LockLayer::new(locks, |request: &Deduct| {
///     Key::of("stock").with(&request.warehouse).with(request.sku)
/// });
///
/// let mut stock = layer.layer(service_fn(async |request: Deduct| {
///     // One call at a time for each warehouse and article, with a fencing token.
///     let fence = LockStatus::current().and_then(|status| status.fence());
///     assert!(fence.is_some());
///     Ok::<_, Infallible>(request.count)
/// }));
/// let request = Deduct { warehouse: "berlin".to_owned(), sku: 42, count: 3 };
/// assert_eq!(stock.ready().await?.call(request).await?, 3);
/// # Ok(())
/// # }
/// ```
///
/// A call answers when the lock has been released, as [`Locks::run`] does, so the next call need
/// not wait for the release.
///
/// The options of the [`Locks`] say how long a call waits for a lock, how the lock is renewed, and
/// what happens to a call whose lock is lost. The key is a [`Key`] or an `Option<Key>`: a request
/// without a key is forwarded without a lock.
#[derive(Clone)]
pub struct LockLayer<L, K> {
    locks: Locks<L>,
    key_of: K,
}

impl<L: Lock, K> LockLayer<L, K> {
    /// A layer with these locks, and a function that gives the key of a request.
    pub fn new<Req, R>(locks: Locks<L>, key_of: K) -> Self
    where
        K: Fn(&Req) -> R,
        R: Into<Option<Key>>,
    {
        Self { locks, key_of }
    }
}

impl<S, L, K: Clone> Layer<S> for LockLayer<L, K> {
    type Service = Locked<S, L, K>;

    fn layer(&self, inner: S) -> Self::Service {
        Locked { inner, locks: self.locks.clone(), key_of: self.key_of.clone() }
    }
}

bellwether::debug_fields! { LockLayer<L, K> where L: Debug => |it| locks = it.locks }

/// A service whose calls run under a lock. [`LockLayer`] makes it.
///
/// It is always ready: a call that waits for a lock takes no capacity of the inner service. When
/// the call has the lock, it drives a clone of the inner service to readiness.
///
/// # Cancel safety
/// Dropping the future drops the inner call, and releases the lock in the background.
#[derive(Clone)]
pub struct Locked<S, L, K> {
    inner: S,
    locks: Locks<L>,
    key_of: K,
}

impl<S, L, K> Locked<S, L, K> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req, L, K, R> Service<Req> for Locked<S, L, K>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Into<BoxError> + Send,
    Req: Send + 'static,
    L: Lock,
    K: Fn(&Req) -> R,
    R: Into<Option<Key>>,
{
    type Response = S::Response;
    type Error = LockedError<S::Error>;
    type Future = BoxFuture<'static, Result<S::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let key = (self.key_of)(&request).into();
        let call = self.inner.clone().oneshot(request);
        let locks = self.locks.clone();
        Box::pin(async move {
            let answer = match key {
                Some(key) => locks.run(&key, call).await?,
                None => call.await,
            };
            answer.map_err(|error| LockedError::Inner(SharedError::new(error)))
        })
    }
}

bellwether::debug_fields! { Locked<S, L, K> where S: Debug, L: Debug => |it|
    inner = it.inner, locks = it.locks
}
