//! Reading a body that should be one gRPC message.

use std::pin::Pin;

use bellwether_body::JoinedFrames;
use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

/// The bytes before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// What came of reading a body.
pub(super) enum Read<B> {
    /// It ended, after no message or one, or in the midst of one.
    Ended { data: Bytes, trailers: Option<HeaderMap>, is_whole: bool },
    /// It goes on after one message, or its message is too long: what was read, and the rest.
    GoesOn { begun: Bytes, rest: Pin<Box<B>> },
    /// One message is there, and nothing behind it yet: what was read, and the rest.
    Pauses { begun: Bytes, rest: Pin<Box<B>> },
}

/// How far a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// To its end.
    End,
    /// To its end, or until there is nothing to be read behind its message.
    Pause,
}

/// Reads a body, but not beyond the frame that shows that there is more in it than one message of
/// `most` bytes. A message that says to be longer is not waited for.
///
/// # Errors
/// If the body ends with an error.
pub(super) async fn read<B>(body: B, most: usize, until: Until) -> Result<Read<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let mut rest = Box::pin(body);
    let (mut begun, mut trailers) = (JoinedFrames::default(), None::<HeaderMap>);
    let mut prefix = Vec::with_capacity(PREFIX);
    loop {
        let frame = match until == Until::Pause && expected(&prefix) == Some(begun.len()) {
            true => match rest.frame().now_or_never() {
                Some(frame) => frame,
                None => return Ok(Read::Pauses { begun: begun.into_bytes(), rest }),
            },
            false => rest.frame().await,
        };
        let Some(frame) = frame else { break };
        match frame?.into_data() {
            Ok(data) => {
                let missing = (PREFIX - prefix.len()).min(data.len());
                prefix.extend_from_slice(&data[..missing]);
                // How long a message says to be is no reason to make so much room.
                begun.push(data, 0);
            }
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
        let is_more = |whole| whole - PREFIX > most || begun.len() > whole;
        if expected(&prefix).is_some_and(is_more) {
            return Ok(Read::GoesOn { begun: begun.into_bytes(), rest });
        }
    }
    let is_whole = begun.len() == 0 || expected(&prefix) == Some(begun.len());
    Ok(Read::Ended { data: begun.into_bytes(), trailers, is_whole })
}

/// How long a message is, together with its prefix.
fn expected(prefix: &[u8]) -> Option<usize> {
    let [_, length @ ..]: [u8; PREFIX] = prefix.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(PREFIX)
}

/// Whether a message is compressed.
pub(super) fn is_compressed(message: &[u8]) -> bool {
    message.first().is_some_and(|flag| *flag != 0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use bellwether_body::CacheBody;

    async fn read_parts(parts: &[&'static [u8]], most: usize) -> Read<impl Body<Data = Bytes>> {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part)))).collect();
        let parts: Vec<Result<_, Infallible>> = parts;
        match read(StreamBody::new(stream::iter(parts)), most, Until::Pause).await {
            Ok(read) => read,
            Err(never) => match never {},
        }
    }

    async fn whole(parts: &[&'static [u8]], most: usize) -> Option<Bytes> {
        match read_parts(parts, most).await {
            Read::Ended { data, is_whole: true, .. } => Some(data),
            _ => None,
        }
    }

    #[tokio::test]
    async fn one_message_is_read_however_it_is_cut() {
        let parts: [&[&[u8]]; 3] =
            [&[b"\0\0\0\0\x02ab"], &[b"\0\0", b"\0\0\x02a", b"", b"b"], &[b"\0\0\0\0\x02", b"ab"]];
        for cut in parts {
            assert_eq!(whole(cut, 2).await.as_deref(), Some(&b"\0\0\0\0\x02ab"[..]));
        }
        assert_eq!(whole(&[b"\0\0\0\0\0"], 2).await.as_deref(), Some(&b"\0\0\0\0\0"[..]));
        assert_eq!(whole(&[], 2).await.as_deref(), Some(&b""[..]));
    }

    #[tokio::test]
    async fn a_message_that_is_cut_off_is_not_whole() {
        for cut in [&b"\0\0\0\0\x02a"[..], b"\0\0\0", b"\0"] {
            let parts = [cut];
            let read = read_parts(&parts, 2).await;
            assert!(matches!(read, Read::Ended { data, is_whole: false, .. } if data == cut));
        }
    }

    #[tokio::test]
    async fn what_goes_on_or_is_too_long_is_given_back_as_it_was() {
        let bodies: [&[&[u8]]; 3] = [
            &[b"\0\0\0\0\x01a", b"\0\0\0\0\x01b", b"rest"],
            &[b"\0\0\0\0\x01a\0", b"rest"],
            &[b"\0\0\0\0\x03", b"abc"],
        ];
        for parts in bodies {
            let Read::GoesOn { begun, rest } = read_parts(parts, 2).await else {
                panic!("it has ended")
            };
            let Ok(body) = CacheBody::rejoined(begun, rest).collect().await else {
                panic!("it has failed")
            };
            assert_eq!(body.to_bytes(), parts.concat());
        }
    }

    #[test]
    fn a_message_takes_no_more_room_than_a_few_times_its_length_however_it_is_cut() {
        const MIB: usize = 1 << 20;
        let prefix: &[u8] = b"\0\x00\x10\0\0";
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let held = |frame: &'static [u8]| {
            let parts = std::iter::once(prefix).chain(std::iter::repeat_n(frame, MIB));
            let frames =
                parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part))));
            let body = StreamBody::new(stream::iter(frames));
            allocation_counter::measure(|| {
                drop(runtime.block_on(read(body, 4 * MIB, Until::Pause)))
            })
            .bytes_max
        };
        assert!(held(b"a") <= 4 * MIB as u64, "{}", held(b"a"));
        assert!(held(b"") <= 1024, "{}", held(b""));
    }

    #[tokio::test]
    async fn a_message_that_says_to_be_too_long_is_not_waited_for() {
        let begun =
            stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0\0\0\0\x03")))]);
        let body = StreamBody::new(futures_util::StreamExt::chain(begun, stream::pending()));
        assert!(matches!(read(body, 2, Until::End).await, Ok(Read::GoesOn { .. })));
    }

    #[tokio::test]
    async fn what_may_follow_a_message_is_waited_for_only_by_those_who_say_so() {
        let body = || {
            let begun = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(
                b"\0\0\0\0\x01a",
            )))]);
            StreamBody::new(futures_util::StreamExt::chain(begun, stream::pending()))
        };
        let read_until = |until| read(body(), 2, until).now_or_never();
        assert!(read_until(Until::End).is_none());
        let Some(Ok(Read::Pauses { begun, .. })) = read_until(Until::Pause) else {
            panic!("it waits")
        };
        assert_eq!(begun, &b"\0\0\0\0\x01a"[..]);
    }
}
