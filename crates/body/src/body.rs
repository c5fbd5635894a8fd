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
pub struct CacheBody<B>(BodySource<B>);

enum BodySource<B> {
    Stored {
        data: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// What was read already, the rest, and those that see every frame.
    Passing {
        begun: Bytes,
        rest: Pin<Box<B>>,
        observers: Vec<BodyObserver>,
    },
}

impl<B> CacheBody<B> {
    /// A body without data or trailers.
    pub fn empty() -> Self {
        Self::stored(Bytes::new(), None)
    }

    /// A stored body, with its trailers.
    pub fn stored(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(BodySource::Stored { data, trailers })
    }

    /// A body that passes through, of which nothing was read.
    pub fn passing(body: B) -> Self {
        Self::resumed(Bytes::new(), Box::pin(body))
    }

    /// A body that passes through, of which `begun` was read: it begins with that.
    pub fn resumed(begun: Bytes, rest: Pin<Box<B>>) -> Self {
        Self(BodySource::Passing { begun, rest, observers: Vec::new() })
    }

    /// The same body with one more observer. Without effect on a stored body.
    pub fn observed_by(mut self, by: BodyObserver) -> Self {
        if let BodySource::Passing { observers, .. } = &mut self.0 {
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
        match &mut self.0 {
            BodySource::Stored { data, .. } if !data.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(data)))))
            }
            BodySource::Stored { trailers, .. } => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            BodySource::Passing { begun, rest, observers } => {
                let polled = match begun.is_empty() {
                    true => rest.as_mut().poll_frame(cx),
                    false => Poll::Ready(Some(Ok(Frame::data(std::mem::take(begun))))),
                };
                let is_end = rest.is_end_stream();
                observers.iter_mut().for_each(|it| observe(it, &polled, is_end, cx));
                polled
            }
        }
    }

    /// Not before the trailers are read: servers stop polling once this is true.
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Stored { data, trailers } => data.is_empty() && trailers.is_none(),
            BodySource::Passing { begun, rest, .. } => begun.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Stored { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            // For a body of exact length, servers send a `content-length` that the loader did not
            // send, and over HTTP/1.1 they omit its trailers.
            BodySource::Stored { data, .. } => {
                let mut hint = SizeHint::new();
                hint.set_lower(data.len() as u64);
                hint
            }
            BodySource::Passing { begun, rest, .. } => {
                let read = begun.len() as u64;
                let left = rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(left.lower().saturating_add(read));
                if let Some(upper) = left.upper() {
                    hint.set_upper(upper.saturating_add(read));
                }
                hint
            }
        }
    }
}

/// Passes the result of a poll to the observer.
fn observe<E>(
    observer: &mut BodyObserver,
    polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
    is_end: bool,
    cx: &mut Context<'_>,
) {
    match polled {
        Poll::Pending => return observer.poll_deadline(cx),
        Poll::Ready(Some(Err(_))) => return observer.broke_off(),
        Poll::Ready(Some(Ok(frame))) => observer.saw(frame),
        Poll::Ready(None) => return observer.ended(),
    }
    // Servers do not poll a body again that says that it has ended.
    match is_end {
        true => observer.ended(),
        false => observer.poll_deadline(cx),
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
        match &self.0 {
            BodySource::Stored { data, .. } => write!(f, "CacheBody(stored, {} bytes)", data.len()),
            BodySource::Passing { .. } => f.write_str("CacheBody(passing)"),
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
