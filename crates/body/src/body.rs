//! `CacheBody`: the body of a response, stored or passing through.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::observer::BodyObserver;

/// The body of a response: a stored one with its trailers, or one that passes through as the loader
/// sends it.
pub struct CacheBody<B> {
    /// What was stored, or read already.
    data: Bytes,
    rest: BodyRest<B>,
}

enum BodyRest<B> {
    /// The trailers of a stored body.
    Trailers(Option<HeaderMap>),
    /// The rest of a body that passes through, and those that see every frame.
    Passing { body: Pin<Box<B>>, observers: Vec<BodyObserver> },
}

impl<B> CacheBody<B> {
    /// A body without data or trailers.
    pub fn empty() -> Self {
        Self::stored(Bytes::new(), None)
    }

    /// A stored body, with its trailers.
    pub fn stored(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data, rest: BodyRest::Trailers(trailers) }
    }

    /// A body that passes through, of which nothing was read.
    pub fn passing(body: B) -> Self {
        Self::resumed(Bytes::new(), Box::pin(body))
    }

    /// A body that passes through, of which `begun` was read: it begins with that.
    pub fn resumed(begun: Bytes, rest: Pin<Box<B>>) -> Self {
        Self { data: begun, rest: BodyRest::Passing { body: rest, observers: Vec::new() } }
    }

    /// The same body with one more observer. Without effect on a stored body.
    pub fn observed_by(mut self, by: BodyObserver) -> Self {
        if let BodyRest::Passing { observers, .. } = &mut self.rest {
            observers.push(by);
        }
        self
    }
}

impl<B> Body for CacheBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { data, rest } = &mut *self;
        let polled = match rest {
            _ if !data.is_empty() => Poll::Ready(Some(Ok(Frame::data(std::mem::take(data))))),
            BodyRest::Trailers(trailers) => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            BodyRest::Passing { body, .. } => body.as_mut().poll_frame(cx),
        };
        if let BodyRest::Passing { body, observers } = rest {
            let is_end = body.is_end_stream();
            observers.iter().for_each(|it| observe(it, &polled, is_end));
        }
        polled
    }

    /// Not before the trailers are read: servers stop polling once this is true.
    fn is_end_stream(&self) -> bool {
        self.data.is_empty()
            && match &self.rest {
                BodyRest::Trailers(trailers) => trailers.is_none(),
                BodyRest::Passing { body, .. } => body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match &self.rest {
            BodyRest::Trailers(None) => SizeHint::with_exact(0),
            // For a body of exact length, servers send a `content-length` that the loader did not
            // send, and over HTTP/1.1 they omit its trailers.
            BodyRest::Trailers(Some(_)) => SizeHint::new(),
            BodyRest::Passing { body, .. } => body.size_hint(),
        };
        let read = self.data.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(left.lower().saturating_add(read));
        if let Some(upper) = left.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

/// Passes the result of a poll to the observer.
fn observe<E>(
    observer: &BodyObserver,
    polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
    is_end: bool,
) {
    match polled {
        Poll::Pending => return,
        Poll::Ready(Some(Err(_))) => return observer.broke_off(),
        Poll::Ready(Some(Ok(frame))) => observer.saw(frame),
        Poll::Ready(None) => return observer.ended(),
    }
    // Servers do not poll a body again that says that it has ended.
    if is_end {
        observer.ended();
    }
}

impl<B> Default for CacheBody<B> {
    fn default() -> Self {
        Self::empty()
    }
}

/// Shows no content.
impl<B> fmt::Debug for CacheBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rest {
            BodyRest::Trailers(_) => write!(f, "CacheBody(stored, {} bytes)", self.data.len()),
            BodyRest::Passing { .. } => f.write_str("CacheBody(passing)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn trailers() -> HeaderMap {
        HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))])
    }

    #[tokio::test]
    async fn trailers_come_after_the_data_and_before_the_end() {
        let mut body: CacheBody<Full<Bytes>> =
            CacheBody::stored(Bytes::from_static(b"data"), Some(trailers()));
        assert_eq!((body.size_hint().lower(), body.size_hint().exact()), (4, None));
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "data");
        assert!(!body.is_end_stream());
        let second = body.frame().await.unwrap().unwrap();
        assert_eq!(second.into_trailers().unwrap(), trailers());
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_resumed_body_begins_with_what_was_read() {
        let begun = Bytes::from_static(b"ab");
        let body = CacheBody::resumed(begun, Box::pin(Full::new(Bytes::from_static(b"cd"))));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");
    }
}
