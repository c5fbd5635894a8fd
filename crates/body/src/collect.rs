//! Reads a body up to a bound of bytes and of time.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::budget::BodyBudget;
use super::joined::JoinedFrames;

/// What [`collect`] read of a body.
#[allow(clippy::exhaustive_enums, reason = "a body ends or it does not")]
pub enum CollectedBody<B> {
    /// All of it.
    Whole {
        /// Its data.
        data: Bytes,
        /// Its trailer fields.
        trailers: Option<HeaderMap>,
    },
    /// It has more bytes than allowed or than the budget has left, or takes longer.
    Unfinished {
        /// What was read.
        begun: Bytes,
        /// The rest.
        rest: Pin<Box<B>>,
        /// Why it was not read to its end.
        why: UnfinishedReason,
    },
}

/// Why a body was not read to its end.
#[allow(clippy::exhaustive_enums, reason = "a reader has these bounds")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedReason {
    /// It has more bytes than allowed.
    TooLarge,
    /// It takes longer than allowed.
    TooSlow,
    /// The budget that all bodies share has too little left. That says nothing about the body itself.
    OverBudget,
}

/// Shows no content.
impl<B> fmt::Debug for CollectedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { data, .. } => write!(f, "Whole({} bytes)", data.len()),
            Self::Unfinished { begun, .. } => write!(f, "Unfinished({} bytes ..)", begun.len()),
        }
    }
}

/// Reads a body to its end. Stops at `until`, after the first frame beyond `most` bytes or beyond the
/// budget, or at once if the body states that it is larger than `most`.
///
/// # Cancel safety
/// Dropping the future drops the body, with what was read of it.
///
/// # Errors
/// If the body fails. What was read of it is dropped, since a truncated body must not be stored.
pub async fn collect<B>(
    body: B,
    most: usize,
    until: Instant,
    budget: &BodyBudget,
) -> Result<CollectedBody<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let in_all = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut share = budget.share();
    let bound = |begun: &[u8]| {
        let bytes = begun.len().max(in_all);
        if bytes > most {
            return Err(UnfinishedReason::TooLarge);
        }
        match begun.is_empty() || share.grow_to(bytes) {
            true => Ok(Some(until)),
            false => Err(UnfinishedReason::OverBudget),
        }
    };
    collect_while(body, in_all, bound).await
}

/// Reads a body to its end, or as far as `bound` says: it gets what was read so far, and says by when the
/// next frame has to come, or why no more is read. `in_all` is how many bytes are expected in total, or
/// zero if that is unknown.
///
/// # Cancel safety
/// As [`collect`].
///
/// # Errors
/// As [`collect`].
pub async fn collect_while<B>(
    body: B,
    in_all: usize,
    mut bound: impl FnMut(&[u8]) -> Result<Option<Instant>, UnfinishedReason>,
) -> Result<CollectedBody<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let mut rest = Box::pin(body);
    let mut begun = JoinedFrames::default();
    let why = loop {
        let frame = match bound(begun.data()) {
            Ok(None) => Ok(rest.frame().await),
            Ok(Some(until)) => timeout_at(until, rest.frame()).await,
            Err(why) => break why,
        };
        match frame {
            Ok(Some(frame)) => begun.add(frame?, in_all),
            Ok(None) => {
                let trailers = begun.take_trailers();
                return Ok(CollectedBody::Whole { data: begun.into_bytes(), trailers });
            }
            Err(_) => break UnfinishedReason::TooSlow,
        }
    };
    Ok(CollectedBody::Unfinished { begun: begun.into_bytes(), rest, why })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::{FutureExt, StreamExt, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::CacheBody;

    fn body(parts: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> {
        let frames = parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes()))));
        StreamBody::new(stream::iter(frames.collect::<Vec<_>>()))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn plenty() -> BodyBudget {
        BodyBudget::new(usize::MAX)
    }

    #[tokio::test]
    async fn a_body_beyond_the_budget_of_all_is_resumed_where_it_was_left() {
        let budget = BodyBudget::new(5);
        let endless = stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from("abc"))) })
            .chain(stream::pending());
        let first = collect(StreamBody::new(Box::pin(endless)), 9, soon(), &budget);
        let mut first = Box::pin(first);
        assert!((&mut first).now_or_never().is_none());
        let Ok(CollectedBody::Unfinished { begun, rest, why: UnfinishedReason::OverBudget }) =
            collect(body(&["de", "fg"]), 9, soon(), &budget).await
        else {
            panic!("all of it")
        };
        let whole = CacheBody::resumed(begun, rest).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "defg");
        drop(first);
        let Ok(CollectedBody::Whole { .. }) =
            collect(body(&["de", "fg"]), 9, soon(), &budget).await
        else {
            panic!("not all of it")
        };
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_resumed_where_it_was_left() {
        let frame =
            |text: &'static [u8]| Ok::<_, Infallible>(Frame::data(Bytes::from_static(text)));
        let late = stream::once(async move {
            tokio::time::sleep(Duration::from_secs(9)).await;
            frame(b"cd")
        });
        let body = StreamBody::new(Box::pin(stream::iter([frame(b"ab")]).chain(late)));
        let until = soon();
        let Ok(CollectedBody::Unfinished { begun, rest, why: UnfinishedReason::TooSlow }) =
            collect(body, 4, until, &plenty()).await
        else {
            panic!("all of it")
        };
        assert_eq!((&begun[..], Instant::now()), (&b"ab"[..], until));
        let whole = CacheBody::resumed(begun, rest).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "abcd");
    }

    #[tokio::test]
    async fn a_body_of_the_largest_size_is_collected() {
        let Ok(CollectedBody::Whole { data, trailers }) =
            collect(body(&["ab", "", "cd"]), 4, soon(), &plenty()).await
        else {
            panic!("not all of it")
        };
        assert_eq!((&data[..], trailers), (&b"abcd"[..], None));
    }

    #[tokio::test]
    async fn a_larger_body_is_resumed_where_it_was_left() {
        let body = body(&["ab", "cd", "ef"]);
        let Ok(CollectedBody::Unfinished { begun, rest, why: UnfinishedReason::TooLarge }) =
            collect(body, 3, soon(), &plenty()).await
        else {
            panic!("all of it")
        };
        assert_eq!(begun, "abcd");
        let whole = CacheBody::resumed(begun, rest).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "abcdef");
    }
}
