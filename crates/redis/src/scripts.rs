//! The scripts of a `RedisStore`, one per operation: what their requests consist of, and readers for their
//! replies.

use std::sync::LazyLock;
use std::time::Duration;
use std::vec;

use super::tag_value;
use bellwether::adapter::jitter;
use bellwether::store::{Digest, TagState};
use bellwether::trace::TraceParent;
use bellwether_redis_client::{RedisClient, RedisScript, RedisValue as Value, ServerTime};

pub(super) type StoreScript = LazyLock<RedisScript>;

pub(super) static ABANDON: StoreScript = LazyLock::new(|| linked(include_str!("abandon.lua")));
pub(super) static ACQUIRE: StoreScript = LazyLock::new(|| linked(include_str!("acquire.lua")));
pub(super) static CHANGE_TAG: StoreScript =
    LazyLock::new(|| linked(include_str!("change_tag.lua")));
pub(super) static COMMIT: StoreScript = LazyLock::new(|| linked(include_str!("commit.lua")));
pub(super) static FAIL: StoreScript = LazyLock::new(|| linked(include_str!("fail.lua")));
pub(super) static INVALIDATE: StoreScript =
    LazyLock::new(|| linked(include_str!("invalidate.lua")));
pub(super) static RENEW: StoreScript = LazyLock::new(|| linked(include_str!("renew.lua")));
pub(super) static TOUCH_TAGS: StoreScript =
    LazyLock::new(|| linked(include_str!("touch_tags.lua")));

/// A script with the functions of the store that it uses.
pub(super) fn linked(text: &str) -> RedisScript {
    RedisScript::linked("", &[include_str!("prelude.lua")], text)
}

/// All names of a key: its entry, lease, watermark and failure.
pub(super) fn names(client: &RedisClient, digest: &Digest) -> Vec<Vec<u8>> {
    ["", ":lease", ":watermark", ":failed"].map(|suffix| client.name(digest, suffix)).into()
}

pub(super) fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn random_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|_| (jitter() * 256.0) as u8).collect()
}

/// Reads 1 or 0.
pub(super) fn is_done(reply: Value) -> Option<bool> {
    Some(reply.whole()? == 1)
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
#[derive(Debug, PartialEq)]
pub(super) struct AcquireReply {
    /// The server's time, in microseconds since the Unix epoch.
    pub(super) now: u64,
    /// The entry that was found, or is not acceptable.
    pub(super) entry: Option<Seen>,
    pub(super) outcome: Acquired,
}

/// The outcome of an acquire. Late if the command arrived after its sender stopped waiting, by the
/// server's clock. Then it did nothing.
#[derive(Debug, PartialEq)]
pub(super) enum Acquired {
    Found,
    Busy { remaining: Duration, fence: u64, trace: Option<TraceParent> },
    Failed { record: Vec<u8>, remaining: Duration },
    Lead { fence: u64, failures: u32, probe: Option<Vec<u8>> },
    Late,
}

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
        self.0.next()?.whole()
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
        Value::Bytes(bytes) => Some(Some(bytes)),
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
        let mut fields = ReplyFields::of(reply)?;
        let (kind, now) = (fields.whole()?, fields.whole()?);
        if kind == 5 {
            return Some(Self { now, entry: None, outcome: Acquired::Late });
        }
        let entry = fields.bytes()?.map(|sealed| Seen { sealed, at: SeenAt::Time(now) });
        let outcome = match kind {
            1 if entry.is_some() => Acquired::Found,
            2 => Acquired::Busy {
                remaining: Duration::from_millis(fields.left()?),
                fence: fields.whole()?,
                // The script gives what another process has written there.
                trace: match fields.0.next() {
                    Some(Value::Bytes(trace)) => {
                        str::from_utf8(&trace).ok().and_then(TraceParent::parse)
                    }
                    _ => None,
                },
            },
            3 => Acquired::Lead {
                fence: fields.whole()?,
                failures: u32::try_from(fields.whole()?).ok()?,
                probe: fields.bytes()?,
            },
            4 => Acquired::Failed {
                record: fields.bytes()??,
                remaining: Duration::from_millis(fields.left()?),
            },
            _ => return None,
        };
        Some(Self { now, entry, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::super::envelope::DRIFT;
    use super::super::tags::TAG_LIFE;
    use super::*;
    use bellwether::adapter::millis;
    use bellwether::store::WATERMARK_TTL;

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
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
            match AcquireReply::read(Value::Array(reply)).map(|reply| reply.outcome) {
                Some(Acquired::Busy { trace, .. }) => trace,
                other => panic!("{other:?}"),
            }
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(busy(Some(Value::Bytes(good.into()))), TraceParent::parse(good));
        let bad = [Value::Bytes(b"\xff\xfe".to_vec()), Value::Bytes(vec![b'0'; 55]), Value::Int(1)];
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
            Value::Other,
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
            assert_eq!(AcquireReply::read(reply.clone()), None, "{reply:?}");
        }
    }

    #[test]
    fn the_scripts_go_by_the_same_times() {
        let prelude = include_str!("prelude.lua");
        let has = |name, value: u64| prelude.contains(&format!("local {name} = {value}\n"));
        assert!(has("watermark_life", millis(WATERMARK_TTL)) && has("tag_life", millis(TAG_LIFE)));
        assert!(has("drift", DRIFT) && Duration::from_micros(DRIFT) < TAG_LIFE);
    }
}
