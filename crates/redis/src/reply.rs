//! Readers for the replies of the scripts.

use std::time::Duration;

use super::tag_value::TagValue;
use bellwether::trace::TraceParent;
use bellwether_redis_client::{RedisValue as Value, ServerTime};

/// An entry in the reply of a script.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) sealed: Vec<u8>,
    pub(super) remaining: Duration,
}

/// An entry in the reply to a lookup.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) sealed: Vec<u8>,
    pub(super) life: SeenLife,
}

/// What a lookup has learned of the life of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SeenLife {
    /// The reply did not say. The estimate of the server's time, shortly after the entry was read.
    Estimated(Option<ServerTime>),
    /// The server's time in us, shortly after the entry was read.
    ReadAt(u64),
    /// What is left of it, by a script.
    Remaining(Duration),
}

/// The reply of `acquire.lua`.
#[derive(Debug, PartialEq)]
pub(super) struct AcquireReply {
    /// The server's time, in microseconds since the Unix epoch.
    pub(super) now: u64,
    /// None if the command arrived after its sender stopped waiting, by the server's clock. Then it
    /// did nothing.
    pub(super) answer: Option<Acquired>,
}

/// The outcome of an acquire that was in time.
#[derive(Debug, PartialEq)]
pub(super) enum Acquired {
    Found(Found),
    Busy { remaining: Duration, fence: u64, stale: Option<Found>, trace: Option<TraceParent> },
    Failed { record: Vec<u8>, remaining: Duration, stale: Option<Found> },
    Lead { fence: u64, stale: Option<Found>, failures: u32, probe: Option<Vec<u8>> },
}

/// The reply to an `MGET`, and the server's time as far as it is known. A value that is no string
/// counts as none.
pub(super) fn seen(reply: Value, now: Option<ServerTime>) -> Option<Vec<Option<Seen>>> {
    seen_with(reply, SeenLife::Estimated(now))
}

/// The replies to an `MGET` and to a `TIME` after it: the server's time in us, and the entries.
pub(super) fn seen_with_time(reply: Value) -> Option<(u64, Vec<Option<Seen>>)> {
    let Value::Array(replies) = reply else { return None };
    let [seen, time]: [Value; 2] = replies.try_into().ok()?;
    let Value::Array(time) = time else { return None };
    let [seconds, micros]: [Value; 2] = time.try_into().ok()?;
    let now = number(&seconds)?.checked_mul(1_000_000)?.checked_add(number(&micros)?)?;
    Some((now, seen_with(seen, SeenLife::ReadAt(now))?))
}

fn seen_with(reply: Value, life: SeenLife) -> Option<Vec<Option<Seen>>> {
    let Value::Array(reply) = reply else {
        return None;
    };
    reply.into_iter().map(|sealed| see(sealed, life)).collect()
}

/// A number in digits.
fn number(value: &Value) -> Option<u64> {
    let Value::Bytes(digits) = value else { return None };
    str::from_utf8(digits).ok()?.parse().ok()
}

/// The reply of `lookup.lua`: the server's time in us, and the entries.
pub(super) fn seen_with_lives(reply: Value) -> Option<(u64, Vec<Option<Seen>>)> {
    let Value::Array(reply) = reply else {
        return None;
    };
    let mut fields = reply.into_iter();
    let now = fields.next()?.whole()?;
    let mut seen = Vec::with_capacity(fields.len() / 2);
    while let Some(sealed) = fields.next() {
        seen.push(see(sealed, SeenLife::Remaining(millis(&fields.next()?)?))?);
    }
    Some((now, seen))
}

/// The reply of `touch_tags.lua`: the server's time, and for each tag, its value, and whether it was
/// absent.
pub(super) fn touched(reply: Value) -> Option<(u64, Vec<(TagValue, bool)>)> {
    let Value::Array(reply) = reply else { return None };
    let mut fields = reply.into_iter();
    let now = fields.next()?.whole()?;
    let mut touched = Vec::with_capacity(fields.len() / 2);
    while let Some(value) = fields.next() {
        let Value::Bytes(value) = value else { return None };
        touched.push((TagValue::read(&value)?, fields.next()? == Value::Int(1)));
    }
    Some((now, touched))
}

fn see(sealed: Value, life: SeenLife) -> Option<Option<Seen>> {
    match sealed {
        Value::Bytes(sealed) => Some(Some(Seen { sealed, life })),
        Value::Nil => Some(None),
        _ => None,
    }
}

impl Found {
    fn of(sealed: Value, remaining: &Value) -> Option<Self> {
        let Value::Bytes(sealed) = sealed else {
            return None;
        };
        Some(Self { sealed, remaining: millis(remaining)? })
    }
}

impl AcquireReply {
    pub(super) fn read(reply: Value) -> Option<Self> {
        let Value::Array(reply) = reply else {
            return None;
        };
        let mut fields = reply.into_iter();
        let kind = fields.next()?;
        let now = fields.next()?.whole()?;
        let answer = match kind {
            Value::Int(5) => None,
            kind => Some(Acquired::read(&kind, fields)?),
        };
        Some(Self { now, answer })
    }
}

impl Acquired {
    fn read(kind: &Value, mut fields: impl Iterator<Item = Value>) -> Option<Self> {
        let mut next = || fields.next();
        match kind {
            Value::Int(1) => Found::of(next()?, &next()?).map(Self::Found),
            Value::Int(2) => Some(Self::Busy {
                remaining: millis(&next()?)?,
                fence: next()?.whole()?,
                stale: Found::of(next()?, &next()?),
                // The script gives what another process has written there.
                trace: match next() {
                    Some(Value::Bytes(trace)) => {
                        str::from_utf8(&trace).ok().and_then(TraceParent::parse)
                    }
                    _ => None,
                },
            }),
            Value::Int(3) => Some(Self::Lead {
                fence: next()?.whole()?,
                stale: Found::of(next()?, &next()?),
                failures: u32::try_from(next()?.whole()?).ok()?,
                probe: match next()? {
                    Value::Bytes(record) => Some(record),
                    Value::Nil => None,
                    _ => return None,
                },
            }),
            Value::Int(4) => {
                let Value::Bytes(record) = next()? else { return None };
                let remaining = millis(&next()?)?;
                Some(Self::Failed { record, remaining, stale: Found::of(next()?, &next()?) })
            }
            _ => None,
        }
    }
}

/// A life in milliseconds. Redis gives -1 for a value without expiry, which is none of ours, and -2
/// for no value. Both count as over.
fn millis(value: &Value) -> Option<Duration> {
    let Value::Int(millis) = value else {
        return None;
    };
    Some(Duration::from_millis(u64::try_from(*millis).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn entries_are_read_with_the_time_that_follows_them() {
        let entries = Value::Array(vec![bytes("entry"), Value::Nil]);
        let time = Value::Array(vec![bytes("17"), bytes("5")]);
        let (now, seen) = seen_with_time(Value::Array(vec![entries, time])).unwrap();
        let entry = Seen { sealed: b"entry".to_vec(), life: SeenLife::ReadAt(now) };
        assert_eq!((now, seen), (17_000_005, vec![Some(entry), None]));
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
            assert_eq!(seen_with_time(array(&[array(&[]), time.clone()])), None, "{time:?}");
        }
        assert_eq!(seen_with_time(array(&[array(&[])])), None);
    }

    #[test]
    fn a_trace_that_cannot_be_read_is_none() {
        let busy = |trace| {
            let head = [2, 1, 7, 9].map(Value::Int);
            let fields = head.into_iter().chain([Value::Nil, Value::Int(0)]);
            let reply = fields.chain(trace).collect();
            match AcquireReply::read(Value::Array(reply)).and_then(|reply| reply.answer) {
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
        let nonsense = [
            Value::Nil,
            Value::Other,
            int(1),
            Value::Array(vec![]),
            Value::Array(vec![int(5)]),
            Value::Array(vec![int(6), int(1)]),
            Value::Array(vec![int(5), int(-1)]),
            Value::Array(vec![int(4), int(1), int(1)]),
            Value::Array(vec![int(3), int(1), int(1), Value::Nil, int(0), int(-1), Value::Nil]),
            Value::Array(vec![int(3), int(1), int(1), Value::Nil, int(0), int(1)]),
            Value::Array(vec![int(3), int(1), int(1), Value::Nil, int(0), int(1), int(1)]),
            Value::Array(vec![int(1), int(1), Value::Nil, int(5)]),
            Value::Array(vec![int(2), int(1)]),
            Value::Array(vec![int(3), int(1), int(-7), Value::Nil, int(0)]),
            Value::Array(vec![int(3), int(-7), int(1), Value::Nil, int(0)]),
            Value::Array(vec![int(3), int(1), Value::Nil]),
        ];
        for reply in nonsense {
            assert_eq!(AcquireReply::read(reply.clone()), None, "{reply:?}");
        }
    }
}
