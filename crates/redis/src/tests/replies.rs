//! Any replies: what is read of one is in it, and no key gets the entry of another.

use std::time::Duration;

use bytes::Bytes;

use super::at_rest::{SealedParts, digest};
use crate::scripts::{self, AcquireReply, Seen, SeenAt};
use crate::store::answer;
use crate::{by_digest, envelope, failure};
use bellwether::store::{Acquire, Claim, Failure};
use bellwether::{FailureCause, Key};
use bellwether_redis_client::RedisValue as Reply;
use bellwether_testkit::fuzz::{Choices, fuzz};

fn leaf(choices: &mut Choices) -> Reply {
    match choices.below(6) {
        0 => Reply::Nil,
        1 => Reply::Okay,
        2 => Reply::Int(choices.number() as i64),
        3 => Reply::Int(choices.below(7) as i64 - 1),
        4 => Reply::BulkString(choices.below(100_000).to_string().into_bytes()),
        _ => Reply::BulkString(choices.bytes(6)),
    }
}

/// A reply with one to three of its parts changed, at any depth.
fn changed(choices: &mut Choices, mut reply: Reply) -> Reply {
    for _ in 0..=choices.below(3) {
        change(choices, &mut reply);
    }
    reply
}

fn change(choices: &mut Choices, reply: &mut Reply) {
    match reply {
        Reply::Array(fields) if !fields.is_empty() && !choices.one_in(8) => {
            let (at, other) = (choices.below(fields.len()), choices.below(fields.len()));
            match choices.below(6) {
                0 => drop(fields.remove(at)),
                1 => fields.truncate(at),
                2 => fields.swap(at, other),
                3 => fields.insert(other, fields[at].clone()),
                4 => fields.insert(at, leaf(choices)),
                _ => change(choices, &mut fields[at]),
            }
        }
        Reply::BulkString(bytes) if choices.one_in(2) => {
            *bytes = choices.mutated(bytes, b"1700000000")
        }
        Reply::Int(number) if choices.one_in(2) => *number = number.wrapping_neg(),
        reply => *reply = leaf(choices),
    }
}

fn int(number: u64) -> Reply {
    Reply::Int((number >> 1) as i64)
}

fn sealed(number: u8) -> Vec<u8> {
    let parts = SealedParts::any(&mut Choices::default());
    SealedParts { value: vec![number; 3], ..parts }.sealed(&digest(number))
}

/// The value that an entry has for a key.
fn value_for(number: u8, sealed: Vec<u8>) -> Option<Vec<u8>> {
    let opened = envelope::open(Bytes::from(sealed), &digest(number)).ok()?;
    Some(opened.entry.value().encoded().to_vec())
}

/// The reply to a read of the entries of items 0, 1, ....
fn lookup_reply(choices: &mut Choices, is_timed: bool) -> (Reply, usize) {
    let count = choices.below(4);
    let entries = (0..count as u8).map(|item| match choices.one_in(4) {
        true => Reply::Nil,
        false => Reply::BulkString(sealed(item)),
    });
    let entries: Vec<_> = entries.collect();
    let now = choices.number() >> 24;
    let reply = match is_timed {
        false => entries,
        true => {
            let time = [now / 1_000_000, now % 1_000_000].map(|part| part.to_string());
            let time = time.map(|part| Reply::BulkString(part.into_bytes())).to_vec();
            vec![Reply::Array(entries), Reply::Array(time)]
        }
    };
    (Reply::Array(reply), count)
}

#[test]
fn fuzzed_replies_to_lookups_give_no_key_the_entry_of_another() {
    fuzz("lookup reply", 64, 1, |choices| {
        let is_timed = choices.one_in(2);
        let (valid, count) = lookup_reply(choices, is_timed);
        let read = |reply| scripts::seen(reply, is_timed, || None);
        if choices.one_in(4) {
            let (_, seen) = read(valid).expect("a valid reply");
            assert_eq!(seen.len(), count);
            let items = (0..).zip(seen).filter_map(|(item, seen)| Some((item, seen?)));
            for (item, Seen { sealed, .. }) in items {
                assert_eq!(value_for(item, sealed), Some(vec![item; 3]));
            }
            return;
        }
        let reply = changed(choices, valid);
        let Some((now, seen)) = read(reply.clone()) else { return };
        assert_eq!(now.is_some(), is_timed, "{reply:?}");
        for (item, Seen { sealed, .. }) in (0..).zip(seen.into_iter().flatten()) {
            let value = value_for(item, sealed);
            assert!(value.is_none_or(|value| value == [item; 3]), "{item}: {reply:?}");
        }
    });
}

/// Whether there are such bytes anywhere in a reply.
fn has_bytes(reply: &Reply, are_wanted: &dyn Fn(&[u8]) -> bool) -> bool {
    match reply {
        Reply::BulkString(bytes) => are_wanted(bytes),
        Reply::Array(fields) => fields.iter().any(|field| has_bytes(field, are_wanted)),
        _ => false,
    }
}

/// The reply to a claim of item 1, and whether it has an entry.
fn acquire_reply(choices: &mut Choices) -> Reply {
    let kind = 1 + choices.below(6) as i64;
    let entry = match kind == 1 || choices.one_in(2) {
        true => Reply::BulkString(sealed(1)),
        false => Reply::Nil,
    };
    let failure = Failure::new(FailureCause::Error, 2, Duration::from_secs(3));
    let failure = || Reply::BulkString(failure::write(&failure));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let rest = match kind {
        2 => vec![int(choices.number()), int(choices.number()), Reply::BulkString(trace.into())],
        3 => vec![int(choices.number()), Reply::Int(1), failure()],
        4 => vec![failure(), int(choices.number())],
        _ => Vec::new(),
    };
    let head = [Reply::Int(kind), int(choices.number())];
    match kind {
        5 => Reply::Array(head.to_vec()),
        6 => Reply::Array(
            head.into_iter().chain([Reply::Int(70_000), int(choices.number())]).collect(),
        ),
        _ => Reply::Array(head.into_iter().chain([entry]).chain(rest).collect()),
    }
}

#[test]
fn fuzzed_replies_to_claims_are_none_or_have_what_is_read_of_them() {
    fuzz("acquire reply", 64, 1, |choices| {
        let valid = acquire_reply(choices);
        assert!(AcquireReply::read(valid.clone()).is_some(), "{valid:?}");
        let reply = changed(choices, valid);
        let Some(read) = AcquireReply::read(reply.clone()) else { return };
        let AcquireReply { kind, now, entry, rest } = read;
        let claim = Claim::new(Key::of("item").with(1u8));
        let acquired = answer(kind, rest, None, &claim, (Duration::from_secs(1), now), Vec::new());
        if let Some(Seen { sealed, at }) = entry {
            assert!(has_bytes(&reply, &|bytes| bytes == sealed) && at == SeenAt::Time(now));
            assert_eq!(value_for(2, sealed.clone()), None, "the key of another item");
            let value = value_for(1, sealed);
            assert!(value.is_none_or(|value| value == [1; 3]), "{reply:?}");
        }
        if let Some(Acquire::Found(found)) = &acquired {
            panic!("{found:?} of {reply:?}");
        }
        if let Some(Acquire::Failed { failure, .. } | Acquire::Lead { probe: Some(failure), .. }) =
            acquired
        {
            assert!(
                has_bytes(&reply, &|bytes| failure::read(bytes).as_ref() == Some(&failure)),
                "{reply:?}"
            );
        }
    });
}

#[test]
fn fuzzed_replies_about_tags_are_none_or_have_a_tag_for_each_field() {
    fuzz("tags reply", 64, 1, |choices| {
        let tag = |choices: &mut Choices| {
            let length = if choices.one_in(2) { 32 } else { 16 };
            Reply::BulkString(vec![choices.byte(); length])
        };
        let count = choices.below(4);
        let tags = (0..count).map(|_| tag(choices));
        let fields: Vec<_> = [Reply::Int(17)].into_iter().chain(tags).collect();
        let valid = Reply::Array(fields);
        let read = scripts::touched(valid.clone()).map(|(now, tags)| (now, tags.len()));
        assert_eq!(read, Some((17, count)));
        let reply = changed(choices, valid);
        if let Some((_, tags)) = scripts::touched(reply.clone()) {
            let Reply::Array(fields) = reply else { panic!("{reply:?} is no array") };
            assert_eq!(fields.len(), 1 + tags.len());
        }
    });
}

#[test]
fn fuzzed_replies_to_inspections_give_no_key_the_entry_of_another() {
    fuzz("inspect reply", 64, 1, |choices| {
        let failure = Failure::new(FailureCause::Error, 2, Duration::from_secs(3));
        let fields = [
            int(choices.number()),
            Reply::BulkString(sealed(1)),
            int(choices.number()),
            Reply::BulkString(failure::write(&failure)),
            int(choices.number()),
            Reply::BulkString(choices.bytes(4)),
            int(choices.number()),
            int(choices.number()),
            int(choices.number()),
            Reply::Nil,
        ];
        let valid = Reply::Array(fields.to_vec());
        let state = by_digest::read(valid.clone(), &digest(1)).expect("a valid reply");
        assert!(state.failure.is_some() && state.lease.is_some());
        let reply = changed(choices, valid);
        let other = by_digest::read(reply.clone(), &digest(2)).and_then(|state| state.entry);
        assert!(other.is_none_or(|entry| entry.is_err()), "{reply:?}");
        let Some(state) = by_digest::read(reply.clone(), &digest(1)) else { return };
        if let Some(Ok(entry)) = state.entry {
            assert_eq!(entry.value().encoded(), &[1; 3][..], "{reply:?}");
        }
    });
}
