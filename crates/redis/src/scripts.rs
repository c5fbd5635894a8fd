//! The scripts of a `RedisStore`, one per operation: what their requests consist of, and readers for their
//! replies.

use std::sync::LazyLock;
use std::vec;

use super::tag_value;
use bellwether::adapter::jitter;
use bellwether::store::{Digest, TagState};
use bellwether_redis_client::{RedisClient, RedisScript, RedisValue as Value, ServerTime, whole};

pub(super) type LuaScript = LazyLock<RedisScript>;

pub(super) static ABANDON: LuaScript = LazyLock::new(|| linked(include_str!("abandon.lua")));
pub(super) static ACQUIRE: LuaScript = LazyLock::new(|| linked(include_str!("acquire.lua")));
pub(super) static CHANGE_TAG: LuaScript = LazyLock::new(|| linked(include_str!("change_tag.lua")));
pub(super) static COMMIT: LuaScript = LazyLock::new(|| linked(include_str!("commit.lua")));
pub(super) static FAIL: LuaScript = LazyLock::new(|| linked(include_str!("fail.lua")));
pub(super) static INVALIDATE: LuaScript = LazyLock::new(|| linked(include_str!("invalidate.lua")));
pub(super) static RENEW: LuaScript = LazyLock::new(|| linked(include_str!("renew.lua")));
pub(super) static TOUCH_TAGS: LuaScript = LazyLock::new(|| linked(include_str!("touch_tags.lua")));

/// A script with the functions of the store that it uses.
pub(super) fn linked(text: &str) -> RedisScript {
    RedisScript::linked("", &[include_str!("prelude.lua")], text)
}

/// All names of a key: its entry, lease, watermark and failure.
pub(super) fn names(client: &RedisClient, digest: &Digest) -> Vec<Vec<u8>> {
    ["", ":lease", ":watermark", ":failed"].map(|suffix| client.names().name(digest, suffix)).into()
}

pub(super) fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn random_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|_| (jitter() * 256.0) as u8).collect()
}

/// Reads 1 or 0.
pub(super) fn is_done(reply: Value) -> Option<bool> {
    Some(whole(&reply)? == 1)
}

/// Accepts any reply.
pub(super) fn any(_: Value) -> Option<()> {
    Some(())
}

/// The maximum of a time in milliseconds. Scripts add and double times in floating point. No layer sets
/// such times.
pub(super) const LONGEST_MS: u64 = 1 << 50;

/// An entry in a reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) sealed: Vec<u8>,
    pub(super) at: SeenAt,
}

/// The server's time when an entry was read, or shortly after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SeenAt {
    /// The time was not read. This is its estimate.
    Estimated(Option<ServerTime>),
    /// In us.
    Time(u64),
}

/// The reply of `acquire.lua`.
pub(super) struct AcquireReply {
    /// Which of the replies it is, as `acquire.lua` numbers them.
    pub(super) kind: u64,
    /// The server's time, in microseconds since the Unix epoch.
    pub(super) now: u64,
    /// The entry that was found, or is not acceptable.
    pub(super) entry: Option<Seen>,
    /// What follows, by its kind.
    pub(super) rest: ReplyFields,
}

/// The [kind](AcquireReply::kind) with an acceptable entry.
pub(super) const FOUND: u64 = 1;

/// That of a command that arrived after its sender stopped waiting, by the server's clock. It did nothing.
pub(super) const LATE: u64 = 5;

/// That of an acceptable entry which is to be read over the connection for large values.
pub(super) const LARGE: u64 = 6;

/// The fields of a reply, in their order.
pub(super) struct ReplyFields(vec::IntoIter<Value>);

impl ReplyFields {
    pub(super) fn of(reply: Value) -> Option<Self> {
        let Value::Array(fields) = reply else { return None };
        Some(Self(fields.into_iter()))
    }

    /// Those of a reply with so many of them.
    fn exactly<const N: usize>(reply: Value) -> Option<[Value; N]> {
        Self::of(reply)?.0.collect::<Vec<_>>().try_into().ok()
    }

    pub(super) fn whole(&mut self) -> Option<u64> {
        whole(&self.0.next()?)
    }

    /// What is left of something. Redis gives -1 for a value without expiry, which is none of ours, and
    /// -2 for no value. Both count as over.
    pub(super) fn left(&mut self) -> Option<u64> {
        let Value::Int(left) = self.0.next()? else { return None };
        Some(u64::try_from(left).unwrap_or(0))
    }

    pub(super) fn bytes(&mut self) -> Option<Option<Vec<u8>>> {
        bytes(self.0.next()?)
    }
}

/// A string, or none.
fn bytes(value: Value) -> Option<Option<Vec<u8>>> {
    match value {
        Value::BulkString(bytes) => Some(Some(bytes)),
        Value::Nil => Some(None),
        _ => None,
    }
}

/// The reply to a lookup, whether that was timed or not: the server's time in us, if that was read, and the
/// entries. A value that is no string counts as none.
pub(super) fn seen(
    reply: Value,
    is_timed: bool,
    estimate: impl FnOnce() -> Option<ServerTime>,
) -> Option<(Option<u64>, Vec<Option<Seen>>)> {
    let (reply, now) = match is_timed {
        false => (reply, None),
        true => {
            let [reply, time] = ReplyFields::exactly(reply)?;
            (reply, Some(time_of(time)?))
        }
    };
    let at = now.map_or_else(|| SeenAt::Estimated(estimate()), SeenAt::Time);
    let see = |value| Some(bytes(value)?.map(|sealed| Seen { sealed, at }));
    Some((now, ReplyFields::of(reply)?.0.map(see).collect::<Option<_>>()?))
}

/// The reply to a `TIME`, in us.
fn time_of(reply: Value) -> Option<u64> {
    let time: [Value; 2] = ReplyFields::exactly(reply)?;
    let digits = |value| str::from_utf8(&bytes(value)??).ok()?.parse::<u64>().ok();
    let [seconds, micros] = time.map(digits);
    seconds?.checked_mul(1_000_000)?.checked_add(micros?)
}

/// The reply of `touch_tags.lua`: the server's time, and the value of each tag.
pub(super) fn touched(reply: Value) -> Option<(u64, Vec<TagState>)> {
    let mut fields = ReplyFields::of(reply)?;
    let now = fields.whole()?;
    let tags = fields.0.map(|value| tag_value::read(&bytes(value)??));
    Some((now, tags.collect::<Option<_>>()?))
}

impl AcquireReply {
    pub(super) fn read(reply: Value) -> Option<Self> {
        let mut rest = ReplyFields::of(reply)?;
        let (kind, now) = (rest.whole()?, rest.whole()?);
        let entry = if matches!(kind, LATE | LARGE) { None } else { rest.bytes()? };
        let entry = entry.map(|sealed| Seen { sealed, at: SeenAt::Time(now) });
        Some(Self { kind, now, entry, rest })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::envelope::DRIFT;
    use super::super::store::answer;
    use super::super::tags::TAG_LIFE;
    use super::*;
    use bellwether::Key;
    use bellwether::adapter::millis;
    use bellwether::store::{Acquire, Claim, WATERMARK_TTL};
    use bellwether::trace::TraceParent;
    use bellwether_redis_client::RedisRequest;

    fn bytes(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// The answer to a claim, if the entry in the reply is none.
    fn acquired(reply: Value) -> Option<Acquire> {
        let AcquireReply { kind, now, rest, .. } = AcquireReply::read(reply)?;
        let claim = Claim::new(Key::of("item").with(1u64));
        answer(kind, rest, None, &claim, (Duration::from_secs(1), now), Vec::new())
    }

    fn timed(reply: Value) -> Option<(Option<u64>, Vec<Option<Seen>>)> {
        seen(reply, true, || None)
    }

    #[test]
    fn entries_are_read_with_the_time_that_follows_them() {
        let entries = Value::Array(vec![bytes("entry"), Value::Nil]);
        let time = Value::Array(vec![bytes("17"), bytes("5")]);
        let (now, seen) = timed(Value::Array(vec![entries, time])).unwrap();
        let entry = Seen { sealed: b"entry".to_vec(), at: SeenAt::Time(17_000_005) };
        assert_eq!((now, seen), (Some(17_000_005), vec![Some(entry), None]));
    }

    #[test]
    fn times_that_make_no_sense_are_refused() {
        let array = |values: &[Value]| Value::Array(values.to_vec());
        let times = [
            Value::Nil,
            array(&[]),
            array(&[bytes("17")]),
            array(&[bytes("17"), bytes("-5")]),
            array(&[bytes("17"), bytes("x")]),
            array(&[bytes("18446744073709551615"), bytes("5")]),
            array(&[bytes("17"), bytes("5"), bytes("5")]),
        ];
        for time in times {
            assert_eq!(timed(array(&[array(&[]), time.clone()])), None, "{time:?}");
        }
        assert_eq!(timed(array(&[array(&[])])), None);
    }

    #[test]
    fn a_trace_that_cannot_be_read_is_none() {
        let busy = |trace| {
            let head = [Value::Int(2), Value::Int(1), Value::Nil];
            let fields = head.into_iter().chain([7, 9].map(Value::Int));
            let reply = fields.chain(trace).collect();
            match acquired(Value::Array(reply)) {
                Some(Acquire::Busy { trace, .. }) => trace,
                other => panic!("{other:?}"),
            }
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(busy(Some(Value::BulkString(good.into()))), TraceParent::parse(good));
        let bad = [
            Value::BulkString(b"\xff\xfe".to_vec()),
            Value::BulkString(vec![b'0'; 55]),
            Value::Int(1),
        ];
        for trace in bad.map(Some).into_iter().chain([None]) {
            assert_eq!(busy(trace), None);
        }
    }

    #[test]
    fn replies_that_make_no_sense_are_refused() {
        let int = Value::Int;
        let nil = || Value::Nil;
        let nonsense = [
            Value::Nil,
            Value::Okay,
            int(1),
            Value::Array(vec![]),
            Value::Array(vec![int(5)]),
            Value::Array(vec![int(6), int(1)]),
            Value::Array(vec![int(6), int(1), nil()]),
            Value::Array(vec![int(5), int(-1)]),
            Value::Array(vec![int(4), int(1), int(1)]),
            Value::Array(vec![int(4), int(1), nil(), nil(), int(1)]),
            Value::Array(vec![int(3), int(1), nil(), int(1), int(-1), nil()]),
            Value::Array(vec![int(3), int(1), nil(), int(1), int(1)]),
            Value::Array(vec![int(3), int(1), nil(), int(1), int(1), int(1)]),
            Value::Array(vec![int(1), int(1), nil()]),
            Value::Array(vec![int(2), int(1)]),
            Value::Array(vec![int(3), int(1), nil(), int(-7), int(0), nil()]),
            Value::Array(vec![int(3), int(-7), nil(), int(1), int(0), nil()]),
            Value::Array(vec![int(3), int(1), Value::Nil]),
        ];
        for reply in nonsense {
            assert!(acquired(reply.clone()).is_none(), "{reply:?}");
        }
    }

    #[test]
    fn the_scripts_go_by_the_same_times() {
        let prelude = include_str!("prelude.lua");
        let has = |name, value: u64| prelude.contains(&format!("local {name} = {value}\n"));
        assert!(has("watermark_life", millis(WATERMARK_TTL)) && has("tag_life", millis(TAG_LIFE)));
        assert!(has("large", RedisRequest::LARGE as u64));
        assert!(has("drift", DRIFT) && Duration::from_micros(DRIFT) < TAG_LIFE);
    }
}
