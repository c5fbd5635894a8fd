//! Bodies of answers: what was kept, or what goes through as it comes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use super::follow::Follow;

/// The body of an answer: one that was kept, with its trailers, or one that goes through as the
/// loader sends it.
pub struct CacheBody<B>(BodySource<B>);

enum BodySource<B> {
    Kept {
        data: Bytes,
        trailers: Option<HeaderMap>,
    },
    /// What was read of it already, the rest, and a watch that is told how that ends.
    Passing {
        begun: Bytes,
        rest: Pin<Box<B>>,
        watch: Option<BodyObserver>,
    },
}

/// What watches a body that goes through.
enum BodyObserver {
    /// It sees all of it.
    Follow(Box<Follow>),
    /// It is told how the body ends.
    BodyEnd(oneshot::Sender<BodyEnd>),
}

/// How a body ends of which one part was read.
#[derive(Debug)]
pub enum BodyEnd {
    /// That part was all but for its trailers.
    Ended(Option<HeaderMap>),
    /// There are more parts.
    GoesOn,
}

impl<B> CacheBody<B> {
    /// No body at all.
    pub fn empty() -> Self {
        Self::kept(Bytes::new(), None)
    }

    /// A stored body, with its trailers.
    pub fn kept(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(BodySource::Kept { data, trailers })
    }

    /// A body of which nothing was read.
    pub fn passing(body: B) -> Self {
        Self::rejoined(Bytes::new(), Box::pin(body))
    }

    /// A body of which some was read.
    pub fn rejoined(begun: Bytes, rest: Pin<Box<B>>) -> Self {
        Self(BodySource::Passing { begun, rest, watch: None })
    }

    /// The same, followed on its way if it goes through.
    pub fn followed_by(mut self, by: Follow) -> Self {
        if let BodySource::Passing { watch, .. } = &mut self.0 {
            *watch = Some(BodyObserver::Follow(Box::new(by)));
        }
        self
    }

    /// A body of which some was read. It is told how it ends as soon as its reader gets that far.
    pub fn watched(begun: Bytes, rest: Pin<Box<B>>, end: oneshot::Sender<BodyEnd>) -> Self {
        Self(BodySource::Passing { begun, rest, watch: Some(BodyObserver::BodyEnd(end)) })
    }
}

/// How a body ends, if its next frame tells.
fn end_by<E>(next: Option<&Result<Frame<Bytes>, E>>) -> Option<BodyEnd> {
    match next {
        None => Some(BodyEnd::Ended(None)),
        Some(Ok(frame)) => match frame.data_ref() {
            Some(data) if data.is_empty() => None,
            Some(_) => Some(BodyEnd::GoesOn),
            None => Some(BodyEnd::Ended(frame.trailers_ref().cloned())),
        },
        Some(Err(_)) => None,
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
            BodySource::Kept { data, .. } if !data.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(data)))))
            }
            BodySource::Kept { trailers, .. } => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            BodySource::Passing { begun, rest, watch } => {
                let was_read = !begun.is_empty();
                let polled = match was_read {
                    true => Poll::Ready(Some(Ok(Frame::data(std::mem::take(begun))))),
                    false => rest.as_mut().poll_frame(cx),
                };
                match watch {
                    Some(BodyObserver::Follow(follow)) => {
                        followed(follow, &polled, rest.is_end_stream(), cx);
                    }
                    Some(BodyObserver::BodyEnd(_)) if !was_read => tell_end(watch, &polled),
                    _ => {}
                }
                polled
            }
        }
    }

    /// Not before the trailers are out: a caller that asks this would leave them behind.
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Kept { data, trailers } => data.is_empty() && trailers.is_none(),
            BodySource::Passing { begun, rest, .. } => begun.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Kept { data, trailers: None } => SizeHint::with_exact(data.len() as u64),
            // Of what says its exact length, servers make a `content-length` that the loader did
            // not send, and over HTTP/1.1 they leave out its trailers.
            BodySource::Kept { data, .. } => {
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

/// Tells how the body ends, if that is known by now.
fn tell_end<E>(watch: &mut Option<BodyObserver>, polled: &Poll<Option<Result<Frame<Bytes>, E>>>) {
    if let Poll::Ready(next) = polled
        && let Some(end) = end_by(next.as_ref())
        && let Some(BodyObserver::BodyEnd(sender)) = watch.take()
    {
        // It may not be waited for any more.
        _ = sender.send(end);
    }
}

/// Shows what came of a poll to what follows the body.
fn followed<E>(
    follow: &mut Follow,
    polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
    is_end: bool,
    cx: &mut Context<'_>,
) {
    match polled {
        Poll::Pending => return follow.poll_deadline(cx),
        Poll::Ready(Some(Err(_))) => return follow.broke_off(),
        Poll::Ready(Some(Ok(frame))) => follow.saw(frame),
        Poll::Ready(None) => return follow.ended(),
    }
    // Servers ask for no more of what says that this was all.
    match is_end {
        true => follow.ended(),
        false => follow.poll_deadline(cx),
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
            BodySource::Kept { data, .. } => write!(f, "CacheBody(kept, {} bytes)", data.len()),
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
    async fn trailers_come_after_the_data_and_are_not_left_behind() {
        let mut body: CacheBody<Full<Bytes>> =
            CacheBody::kept(Bytes::from_static(b"data"), Some(trailers()));
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
    async fn what_was_read_of_a_body_comes_before_its_rest() {
        let begun = Bytes::from_static(b"ab");
        let body = CacheBody::rejoined(begun, Box::pin(Full::new(Bytes::from_static(b"cd"))));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");
    }
}
