//! Reads a body that should be one gRPC message.

use std::pin::Pin;

use bellwether_body::{BudgetShare, JoinedFrames};
use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;

/// The bytes before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// What [`read`] found in a body.
pub(super) enum ReadBody<B> {
    /// It ended, after no message or one, or within a message.
    Ended { data: Bytes, trailers: Option<HeaderMap>, is_whole: bool },
    /// More data follows one message, or its message is too long: what was read, and the rest.
    Continues { begun: Bytes, rest: Pin<Box<B>> },
    /// Its message is beyond the budget, which says nothing about it: what was read, and the rest.
    OverBudget { begun: Bytes, rest: Pin<Box<B>> },
    /// One message has arrived, and nothing after it yet: what was read, and the rest.
    Pauses { begun: Bytes, rest: Pin<Box<B>> },
}

/// How far a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadUntil {
    /// To its end.
    End,
    /// To its end, or until nothing can be read after its message without waiting.
    Pause,
}

/// Reads a body, and stops at the frame that shows that it has more than one message of `most`
/// bytes, or at the one beyond the budget that it has a share of. A message with a longer stated length is not read.
///
/// # Errors
/// If the body fails.
pub(super) async fn read<B>(
    body: B,
    most: usize,
    until: ReadUntil,
    mut share: Option<BudgetShare>,
) -> Result<ReadBody<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let mut rest = Box::pin(body);
    let mut begun = JoinedFrames::default();
    let mut trailers = None::<HeaderMap>;
    let mut prefix = Vec::with_capacity(PREFIX);
    loop {
        let frame = match until == ReadUntil::Pause && expected(&prefix) == Some(begun.len()) {
            true => match rest.frame().now_or_never() {
                Some(frame) => frame,
                None => return Ok(ReadBody::Pauses { begun: begun.into_bytes(), rest }),
            },
            false => rest.frame().await,
        };
        let Some(frame) = frame else { break };
        match frame?.into_data() {
            Ok(data) => {
                let missing = (PREFIX - prefix.len()).min(data.len());
                prefix.extend_from_slice(&data[..missing]);
                // The stated length is not trusted, so no capacity is reserved for it.
                begun.push(data, 0);
            }
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
        let mut has_room = |bytes| share.as_mut().is_none_or(|share| share.grow_to(bytes));
        let is_more = |whole| whole - PREFIX > most || begun.len() > whole;
        if expected(&prefix).is_some_and(is_more) {
            return Ok(ReadBody::Continues { begun: begun.into_bytes(), rest });
        }
        if !has_room(begun.len()) {
            return Ok(ReadBody::OverBudget { begun: begun.into_bytes(), rest });
        }
    }
    let is_whole = begun.is_empty() || expected(&prefix) == Some(begun.len());
    Ok(ReadBody::Ended { data: begun.into_bytes(), trailers, is_whole })
}

/// The stated length of a message with its prefix.
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
    use bellwether_body::{BodyBudget, CacheBody};

    async fn read_parts(parts: &[&'static [u8]], most: usize) -> ReadBody<impl Body<Data = Bytes>> {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part)))).collect();
        let parts: Vec<Result<_, Infallible>> = parts;
        match read(StreamBody::new(stream::iter(parts)), most, ReadUntil::Pause, None).await {
            Ok(read) => read,
            Err(never) => match never {},
        }
    }

    async fn whole(parts: &[&'static [u8]], most: usize) -> Option<Bytes> {
        match read_parts(parts, most).await {
            ReadBody::Ended { data, is_whole: true, .. } => Some(data),
            _ => None,
        }
    }

    #[tokio::test]
    async fn one_message_is_read_from_any_frames() {
        let parts: [&[&[u8]]; 3] =
            [&[b"\0\0\0\0\x02ab"], &[b"\0\0", b"\0\0\x02a", b"", b"b"], &[b"\0\0\0\0\x02", b"ab"]];
        for cut in parts {
            assert_eq!(whole(cut, 2).await.as_deref(), Some(&b"\0\0\0\0\x02ab"[..]));
        }
        assert_eq!(whole(&[b"\0\0\0\0\0"], 2).await.as_deref(), Some(&b"\0\0\0\0\0"[..]));
        assert_eq!(whole(&[], 2).await.as_deref(), Some(&b""[..]));
    }

    #[tokio::test]
    async fn a_truncated_message_is_not_whole() {
        for cut in [&b"\0\0\0\0\x02a"[..], b"\0\0\0", b"\0"] {
            let parts = [cut];
            let read = read_parts(&parts, 2).await;
            assert!(matches!(read, ReadBody::Ended { data, is_whole: false, .. } if data == cut));
        }
    }

    #[tokio::test]
    async fn a_body_with_more_data_or_a_longer_message_is_returned_unchanged() {
        let bodies: [&[&[u8]]; 3] = [
            &[b"\0\0\0\0\x01a", b"\0\0\0\0\x01b", b"rest"],
            &[b"\0\0\0\0\x01a\0", b"rest"],
            &[b"\0\0\0\0\x03", b"abc"],
        ];
        for parts in bodies {
            let ReadBody::Continues { begun, rest } = read_parts(parts, 2).await else {
                panic!("it has ended")
            };
            let Ok(body) = CacheBody::resumed(begun, rest).collect().await else {
                panic!("it has failed")
            };
            assert_eq!(body.to_bytes(), parts.concat());
        }
    }

    #[test]
    fn a_message_in_small_frames_takes_at_most_a_few_times_its_length_in_memory() {
        const MIB: usize = 1 << 20;
        let prefix: &[u8] = b"\0\x00\x10\0\0";
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let held = |frame: &'static [u8]| {
            let parts = std::iter::once(prefix).chain(std::iter::repeat_n(frame, MIB));
            let frames =
                parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part))));
            let body = StreamBody::new(stream::iter(frames));
            allocation_counter::measure(|| {
                drop(runtime.block_on(read(body, 4 * MIB, ReadUntil::Pause, None)))
            })
            .bytes_max
        };
        assert!(held(b"a") <= 4 * MIB as u64, "{}", held(b"a"));
        assert!(held(b"") <= 1024, "{}", held(b""));
    }

    #[tokio::test]
    async fn a_message_with_a_stated_length_above_the_bound_is_not_read() {
        let begun =
            stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0\0\0\0\x03")))]);
        let body = StreamBody::new(futures_util::StreamExt::chain(begun, stream::pending()));
        assert!(matches!(
            read(body, 2, ReadUntil::End, None).await,
            Ok(ReadBody::Continues { .. })
        ));
    }

    #[tokio::test]
    async fn a_message_beyond_the_budget_is_no_larger_than_allowed() {
        let share = || Some(BodyBudget::new(5).share());
        let body = |message: &'static [u8]| {
            let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(message)))];
            StreamBody::new(stream::iter(frames))
        };
        let small = read(body(b"\0\0\0\0\x01a"), 2, ReadUntil::Pause, share()).await;
        assert!(matches!(small, Ok(ReadBody::OverBudget { .. })));
        let large = read(body(b"\0\0\0\0\x03abc"), 2, ReadUntil::Pause, share()).await;
        assert!(matches!(large, Ok(ReadBody::Continues { .. })));
    }

    #[tokio::test]
    async fn only_a_read_to_the_end_waits_for_what_may_follow_a_message() {
        let body = || {
            let begun = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(
                b"\0\0\0\0\x01a",
            )))]);
            StreamBody::new(futures_util::StreamExt::chain(begun, stream::pending()))
        };
        let read_until = |until| read(body(), 2, until, None).now_or_never();
        assert!(read_until(ReadUntil::End).is_none());
        let Some(Ok(ReadBody::Pauses { begun, .. })) = read_until(ReadUntil::Pause) else {
            panic!("it waits")
        };
        assert_eq!(begun, &b"\0\0\0\0\x01a"[..]);
    }
}
