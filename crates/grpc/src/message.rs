//! Reads a body that should be one gRPC message.

use std::time::Duration;

use bellwether_body::{BudgetShare, CollectedBody, UnfinishedReason, collect_while};
use bytes::Bytes;
use http_body::Body;
use tokio::time::Instant;

/// The bytes before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// Reads a body, and stops at the frame that shows that it has more than one message of `most` bytes. A
/// message with a longer stated length is not read. It is read to its end, or for a pause after its message:
/// then it is [too slow](UnfinishedReason::TooSlow). With a share of a budget, as an answer has one, also to the
/// frame beyond the budget.
///
/// # Errors
/// If the body fails.
pub(super) async fn read<B>(
    body: B,
    most: usize,
    mut share: Option<BudgetShare>,
) -> Result<CollectedBody<B>, B::Error>
where
    B: Body<Data = Bytes>,
{
    let pause = if share.is_some() { PAUSE } else { PAUSE_OF_CALLERS };
    let mut ends = None;
    let bound = |begun: &[u8]| {
        let whole = whole_length(begun);
        if whole.is_some_and(|whole| whole - PREFIX > most || begun.len() > whole) {
            return Err(UnfinishedReason::TooLarge);
        }
        if share.as_mut().is_some_and(|share| !share.grow_to(begun.len())) {
            return Err(UnfinishedReason::OverBudget);
        }
        let is_last = whole == Some(begun.len());
        Ok(is_last.then(|| *ends.get_or_insert_with(|| Instant::now() + pause)))
    };
    // The stated length is not trusted, so no capacity is reserved for it.
    collect_while(body, 0, bound).await
}

/// How long the trailers may take after the message. A server sends them with the message or right
/// after it, and the callers of a stream should not wait long for its first message.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the end of a request may take after its message. A caller may send no more before it has an answer:
/// then the request is a stream.
const PAUSE_OF_CALLERS: Duration = Duration::from_secs(1);

/// Whether the data of a body is no message or one, and not a part of one.
pub(super) fn is_whole(data: &[u8]) -> bool {
    data.is_empty() || whole_length(data) == Some(data.len())
}

/// The length of the message that data begins with, and of its prefix, if that is there.
fn whole_length(data: &[u8]) -> Option<usize> {
    let [_, length @ ..]: [u8; PREFIX] = data.get(..PREFIX)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(PREFIX)
}

/// Whether the flag of a message says that it is not compressed.
pub(super) fn is_plain(message: &[u8]) -> bool {
    message.first() == Some(&0)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::UnfinishedReason::{OverBudget, TooLarge, TooSlow};
    use super::*;
    use bellwether_body::{BodyBudget, CacheBody};
    use bellwether_testkit::fuzz::{Choices, fuzz};
    use http_body_util::BodyExt;

    fn plenty() -> Option<BudgetShare> {
        Some(BodyBudget::new(usize::MAX).share())
    }

    async fn read_parts(
        parts: &[&'static [u8]],
        most: usize,
    ) -> CollectedBody<impl Body<Data = Bytes>> {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part)))).collect();
        let parts: Vec<Result<_, Infallible>> = parts;
        match read(StreamBody::new(stream::iter(parts)), most, plenty()).await {
            Ok(read) => read,
            Err(never) => match never {},
        }
    }

    async fn whole(parts: &[&'static [u8]], most: usize) -> Option<Bytes> {
        match read_parts(parts, most).await {
            CollectedBody::Whole { data, .. } if is_whole(&data) => Some(data),
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
            assert!(
                matches!(read, CollectedBody::Whole { data, .. } if data == cut && !is_whole(cut))
            );
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
            let CollectedBody::Unfinished { begun, rest, why: TooLarge } =
                read_parts(parts, 2).await
            else {
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let held = |frame: &'static [u8]| {
            let parts = std::iter::once(prefix).chain(std::iter::repeat_n(frame, MIB));
            let frames =
                parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part))));
            let body = StreamBody::new(stream::iter(frames));
            allocation_counter::measure(|| drop(runtime.block_on(read(body, 4 * MIB, plenty()))))
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
            read(body, 2, None).await,
            Ok(CollectedBody::Unfinished { why: TooLarge, .. })
        ));
    }

    #[tokio::test]
    async fn a_message_beyond_the_budget_is_no_larger_than_allowed() {
        let share = || Some(BodyBudget::new(5).share());
        let body = |message: &'static [u8]| {
            let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(message)))];
            StreamBody::new(stream::iter(frames))
        };
        let small = read(body(b"\0\0\0\0\x01a"), 2, share()).await;
        assert!(matches!(small, Ok(CollectedBody::Unfinished { why: OverBudget, .. })));
        let large = read(body(b"\0\0\0\0\x03abc"), 2, share()).await;
        assert!(matches!(large, Ok(CollectedBody::Unfinished { why: TooLarge, .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_follow_a_message_is_awaited_for_a_moment_and_longer_in_a_request() {
        let body = || {
            let begun = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(
                b"\0\0\0\0\x01a",
            )))]);
            StreamBody::new(futures_util::StreamExt::chain(begun, stream::pending()))
        };
        for (share, pause) in [(plenty(), PAUSE), (None, PAUSE_OF_CALLERS)] {
            let began = Instant::now();
            let read = tokio::time::timeout(pause * 2, read(body(), 2, share));
            let Ok(Ok(CollectedBody::Unfinished { begun, why: TooSlow, .. })) = read.await else {
                panic!("it waits")
            };
            assert_eq!((&begun[..], began.elapsed()), (&b"\0\0\0\0\x01a"[..], pause));
        }
    }

    /// A body in frames, with trailers, and all of it that is read: the data, the trailers, and whether it has ended.
    async fn read_frames(
        frames: &[Bytes],
        trailers: &http::HeaderMap,
        most: usize,
    ) -> (Bytes, Option<http::HeaderMap>, bool) {
        let frames = frames.iter().cloned().map(Frame::data);
        let frames =
            frames.chain((!trailers.is_empty()).then(|| Frame::trailers(trailers.clone())));
        let frames: Vec<_> = frames.map(Ok::<_, Infallible>).collect();
        match read(StreamBody::new(stream::iter(frames)), most, plenty()).await {
            Ok(CollectedBody::Whole { data, trailers }) => (data, trailers, true),
            Ok(CollectedBody::Unfinished { begun, rest, why: TooLarge }) => {
                let Ok(rest) = CacheBody::resumed(begun, rest).collect().await;
                let trailers = rest.trailers().cloned();
                (rest.to_bytes(), trailers, false)
            }
            read => panic!("{read:?}"),
        }
    }

    /// Zero to two messages, whose stated lengths and bytes may be wrong.
    fn messages(choices: &mut Choices) -> Vec<u8> {
        let mut data = Vec::new();
        for _ in 0..choices.below(3) {
            let message = choices.bytes(12);
            data.push(choices.below(2) as u8);
            data.extend((message.len() as u32).to_be_bytes());
            data.extend(message);
        }
        if choices.one_in(2) { choices.mutated(&data, b"\0\0\0\0\x01a") } else { data }
    }

    #[test]
    fn fuzzed_frames_are_read_like_the_same_bytes_in_one_frame() {
        const MOST: usize = 10;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        fuzz("gRPC frames", 96, 1, |choices| {
            let data = messages(choices);
            let mut trailers = http::HeaderMap::new();
            if choices.one_in(2) {
                trailers.insert("grpc-status", choices.below(20).into());
            }
            let (mut frames, mut rest) = (Vec::new(), Bytes::from(data.clone()));
            while !rest.is_empty() {
                frames.push(rest.split_to(choices.below(rest.len() + 1)));
                if choices.one_in(8) {
                    frames.push(std::mem::take(&mut rest));
                }
                // Otherwise the smallest choices would be frames without an end.
                if frames.len() > 32 {
                    break;
                }
            }
            frames.push(rest);
            let whole = [Bytes::from(data.clone())];
            let in_one = runtime.block_on(read_frames(&whole, &trailers, MOST));
            let in_parts = runtime.block_on(read_frames(&frames, &trailers, MOST));
            assert_eq!(in_parts, in_one, "{frames:?}");
            let (read, _, has_ended) = in_one;
            assert_eq!(read, data);
            let stated = data.first_chunk::<5>().map(|prefix| {
                u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize
            });
            let is_too_large =
                stated.is_some_and(|stated| stated > MOST || data.len() > 5 + stated);
            assert_eq!(has_ended, !is_too_large, "{data:?}");
            let is_one = data.is_empty() || stated == data.len().checked_sub(5);
            assert_eq!(
                is_whole(&data),
                is_one && (data.is_empty() || stated.is_some()),
                "{data:?}"
            );
        });
    }
}
