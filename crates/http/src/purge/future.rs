//! `PurgeFuture`: the response to one request.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bellwether::BoxFuture;
use bellwether_body::CacheBody;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use pin_project::pin_project;

use super::purger::PurgeOutcome;

/// The response to one request, as a future. Made by [`Purge`](super::Purge).
///
/// # Cancel safety
/// If the future of a `PURGE` is dropped, the responses may be purged or not. Other requests are
/// dropped as the service behind it says.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct PurgeFuture<F>(#[pin] State<F>);

#[pin_project(project = PurgeProjection)]
enum State<F> {
    /// The request is not a `PURGE`.
    Passing(#[pin] F),
    Purging(BoxFuture<'static, PurgeOutcome>),
}

impl<F> PurgeFuture<F> {
    pub(super) fn passing(answered: F) -> Self {
        Self(State::Passing(answered))
    }

    pub(super) fn purging(purged: BoxFuture<'static, PurgeOutcome>) -> Self {
        Self(State::Purging(purged))
    }
}

impl<F, B, E> Future for PurgeFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<CacheBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project().0.project() {
            PurgeProjection::Passing(answered) => {
                ready!(answered.poll(cx)).map(|response| response.map(CacheBody::passing))
            }
            PurgeProjection::Purging(purged) => Ok(response(ready!(purged.as_mut().poll(cx)))),
        })
    }
}

fn response<B>((status, text): PurgeOutcome) -> Response<CacheBody<B>> {
    let mut response = Response::new(CacheBody::stored(text.into(), None));
    *response.status_mut() = status;
    let mut insert = |name: HeaderName, value| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    insert(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    insert(header::CACHE_CONTROL, "no-store");
    if status == StatusCode::UNAUTHORIZED {
        insert(header::WWW_AUTHENTICATE, "Bearer");
    }
    response
}

impl<F> fmt::Debug for PurgeFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PurgeFuture").finish_non_exhaustive()
    }
}
