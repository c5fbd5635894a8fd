//! Reading a body up to a bound.

use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

use super::joined::Joined;

/// What came of reading a body.
pub(crate) enum Collected<B> {
    /// All of it.
    Whole { data: Bytes, trailers: Option<HeaderMap> },
    /// It has more bytes than wanted: what was read, and the rest.
    TooLarge { begun: Bytes, rest: Pin<Box<B>> },
}

/// Reads a body, but no more of it than one frame beyond `most` bytes.
///
/// # Errors
/// If the body ends with an error: what was read of it is not to be kept.
pub(crate) async fn collect<B>(body: B, most: usize) -> Result<Collected<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let mut body = Box::pin(body);
    let (mut begun, mut trailers) = (Joined::default(), None::<HeaderMap>);
    let in_all = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if in_all > most {
        return Ok(Collected::TooLarge { begun: Bytes::new(), rest: body });
    }
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => begun.push(data, in_all),
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
        if begun.len() > most {
            return Ok(Collected::TooLarge { begun: begun.into_bytes(), rest: body });
        }
    }
    Ok(Collected::Whole { data: begun.into_bytes(), trailers })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::response::CacheBody;

    fn body(parts: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> {
        let frames = parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes()))));
        StreamBody::new(stream::iter(frames.collect::<Vec<_>>()))
    }

    #[tokio::test]
    async fn a_body_as_large_as_may_be_is_collected() {
        let Ok(Collected::Whole { data, trailers }) = collect(body(&["ab", "", "cd"]), 4).await
        else {
            panic!("not all of it")
        };
        assert_eq!((&data[..], trailers), (&b"abcd"[..], None));
    }

    #[tokio::test]
    async fn a_larger_one_goes_on_from_where_it_was_left() {
        let Ok(Collected::TooLarge { begun, rest }) = collect(body(&["ab", "cd", "ef"]), 3).await
        else {
            panic!("all of it")
        };
        assert_eq!(begun, "abcd");
        let whole = CacheBody::rejoined(begun, rest).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "abcdef");
    }
}
