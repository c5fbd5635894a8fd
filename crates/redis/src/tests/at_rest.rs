//! Any bytes at rest: only those that were sealed for a key are an entry of it.

use std::time::Duration;

use bytes::Bytes;

use crate::envelope::{self, Opened};
use crate::{failure, tag_value};
use bellwether::store::{Digest, Draft, Failure, TagEpoch, Value};
use bellwether::{FailureCause, Lifetimes};
use bellwether_testkit::fuzz::{Choices, fuzz};

/// What is sealed for a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SealedParts {
    pub(super) value: Vec<u8>,
    pub(super) codec: u8,
    pub(super) lifetimes: Lifetimes,
    pub(super) load_time: Duration,
    pub(super) fence: u64,
    pub(super) stored_at: u64,
    pub(super) epochs: Vec<TagEpoch>,
}

impl SealedParts {
    pub(super) fn any(choices: &mut Choices) -> Self {
        let mut millis = || Duration::from_millis(choices.number());
        let lifetimes = Lifetimes::fresh_for(millis())
            .stale_while_revalidate(millis())
            .stale_if_error(millis())
            .kept_for_validation(millis());
        let lifetimes = if choices.one_in(3) { lifetimes.refreshed_early() } else { lifetimes };
        let epoch = |choices: &mut Choices| TagEpoch {
            tag: Digest::from([choices.byte(); Digest::BYTES]),
            hard: choices.number(),
            soft: choices.number(),
        };
        Self {
            lifetimes,
            codec: choices.byte(),
            load_time: Duration::from_micros(choices.number() & u64::from(u32::MAX)),
            fence: choices.number(),
            stored_at: choices.number(),
            epochs: (0..choices.below(4)).map(|_| epoch(choices)).collect(),
            value: choices.bytes(20),
        }
    }

    pub(super) fn sealed(&self, key: &Digest) -> Vec<u8> {
        let value = Value::new(Bytes::from(self.value.clone()));
        let draft = Draft::new(value, self.codec, self.lifetimes);
        let draft = draft.timed(self.load_time, Duration::ZERO);
        envelope::seal(&draft, key, self.fence, self.stored_at, &self.epochs)
    }

    fn of(Opened { entry, .. }: &Opened) -> Self {
        Self {
            value: entry.value().encoded().to_vec(),
            codec: entry.codec(),
            lifetimes: entry.lifetimes(),
            load_time: entry.load_time(),
            fence: entry.fence(),
            stored_at: entry.stored_at(),
            epochs: entry.epochs().to_vec(),
        }
    }
}

pub(super) fn digest(number: u8) -> Digest {
    Digest::from([number; Digest::BYTES])
}

/// The bytes with the checksum that they should have.
fn summed(mut sealed: Vec<u8>) -> Vec<u8> {
    if sealed.len() >= 96 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(&sealed[..84]);
        sum.update(&sealed[96..]);
        sealed[84..88].copy_from_slice(&sum.finalize().to_be_bytes());
    }
    sealed
}

#[test]
fn fuzzed_entries_are_opened_as_they_were_sealed_and_by_their_own_key_only() {
    fuzz("envelope, sealed", 128, 1, |choices| {
        let parts = SealedParts::any(choices);
        let sealed = parts.sealed(&digest(1));
        assert_eq!(envelope::fence(&sealed), parts.fence);
        let opened = envelope::open(sealed.clone().into(), &digest(1)).expect("an entry");
        assert_eq!((SealedParts::of(&opened), opened.stale_at), (parts, 0));
        assert!(envelope::open(sealed.into(), &digest(2)).is_err());
    });
}

/// The checksum has 32 bits. So the format cannot tell one in 2^32 changes of more than four bytes from what was
/// sealed, and none of fewer. Damage of the time at which a script has made an entry stale makes it stale.
#[test]
fn fuzzed_envelopes_that_were_changed_are_errors_or_hold_what_was_sealed() {
    fuzz("envelope, changed", 160, 1, |choices| {
        let of_one_key = [SealedParts::any(choices), SealedParts::any(choices)];
        let sealed = of_one_key.each_ref().map(|parts| parts.sealed(&digest(1)));
        let changed = choices.mutated(&sealed[0], &sealed[1]);
        _ = envelope::fence(&changed);
        if let Ok(opened) = envelope::open(changed.clone().into(), &digest(1)) {
            let parts = SealedParts::of(&opened);
            assert!(of_one_key.contains(&parts), "{changed:?} is {parts:?}");
        }
        assert!(envelope::open(changed.into(), &digest(2)).is_err());
    });
}

/// What the checksum does not find is read without a panic, and as what is there.
#[test]
fn fuzzed_envelopes_with_a_valid_checksum_are_errors_or_sealed_again_as_the_same_bytes() {
    fuzz("envelope, summed", 160, 1, |choices| {
        let sealed = [SealedParts::any(choices), SealedParts::any(choices)]
            .map(|parts| parts.sealed(&digest(1)));
        let changed = summed(choices.mutated(&sealed[0], &sealed[1]));
        let Ok(opened) = envelope::open(changed.clone().into(), &digest(1)) else { return };
        let mut again = SealedParts::of(&opened).sealed(&digest(1));
        again[88..96].copy_from_slice(&opened.stale_at.to_be_bytes());
        assert_eq!(again, changed);
    });
}

fn failure(choices: &mut Choices) -> Failure {
    let causes = [FailureCause::Error, FailureCause::TimedOut, FailureCause::Panicked];
    let mut time = || Duration::from_millis(choices.number() >> 15);
    let [window, cooldown, life] = [time(), time(), time()];
    let (cause, times) = (causes[choices.below(3)], choices.number() as u32);
    let failure = Failure::new(cause, times, window).with_cooldown(cooldown).with_life(life);
    failure.with_message(&choices.text(20))
}

#[test]
fn fuzzed_failures_are_read_as_they_were_written() {
    fuzz("failure, written", 96, 1, |choices| {
        let failure = failure(choices);
        assert_eq!(failure::read(&failure::write(&failure)), Some(failure));
    });
}

/// A record has no checksum, so what was changed may be another failure. It is written again as what was read.
#[test]
fn fuzzed_records_of_failures_are_none_or_written_as_they_were_read() {
    fuzz("failure, changed", 160, 1, |choices| {
        let written = [failure(choices), failure(choices)].map(|failure| failure::write(&failure));
        let changed = choices.mutated(&written[0], &written[1]);
        let Some(read) = failure::read(&changed) else { return };
        let once = failure::read(&failure::write(&read));
        let twice = once.as_ref().and_then(|once| failure::read(&failure::write(once)));
        assert!(once.is_some() && once == twice, "{changed:?} is {read:?}");
        assert!(read.cooldown <= read.window && read.window <= read.life, "{read:?}");
    });
}

#[test]
fn fuzzed_bytes_are_a_tag_only_if_they_are_numbers_of_one() {
    fuzz("tag", 64, 1, |choices| {
        let numbers = [0; 4].map(|_: u64| choices.number());
        let whole: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        let whole = &whole[..if choices.one_in(2) { 32 } else { 16 }];
        let bytes = if choices.one_in(2) { choices.mutated(whole, whole) } else { whole.to_vec() };
        let Some(tag) = tag_value::read(&bytes) else {
            assert!(![16, 32].contains(&bytes.len()), "{bytes:?}");
            return;
        };
        let spread = tag.spread.map(|spread| [spread.before, spread.over.as_millis() as u64]);
        let numbers = [tag.hard, tag.soft].into_iter().chain(spread.into_iter().flatten());
        let again: Vec<u8> = numbers.flat_map(u64::to_be_bytes).collect();
        assert_eq!(again, bytes);
        _ = tag_value::has_changed_since(tag, choices.number());
    });
}
