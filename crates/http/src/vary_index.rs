//! `VaryIndex`: how a request selects one of the stored variants of its target, and which of them are
//! from before an expiry.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwether::codec::EncodeBuffer;
use bellwether::{BoxError, Key, Lifetimes, StaleReason};
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use super::rules::{self, Consent, StaleWindows};

/// How a request selects one of the stored variants of its target.
///
/// Only the index of a target is found by its URI, not the variants. So the expiries of a URI are noted
/// here. A variant that was loaded before the last one is stale, and the next request for it tells the
/// store so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VaryIndex {
    /// The selecting header fields, sorted and in lower case.
    names: Vec<String>,
    /// Part of the keys of its variants. With a new nonce, the old variants are not found.
    pub(super) nonce: [u8; 16],
    /// How long it is stored, in milliseconds.
    life: u64,
    /// The last expiries of its variants: their times, in milliseconds since the Unix epoch. Each is
    /// greater than the one before. 0 stands for none. Of those within a second, the first and the last
    /// are enough.
    expiries: Vec<u64>,
}

impl VaryIndex {
    /// The first byte of an encoded index.
    pub(super) const FIRST_BYTE: u8 = 2;

    /// A `Vary` index by names in any order, [stored](Self::stored_for) for its first variant.
    /// `last_expiry` is that under which this variant was loaded.
    pub(super) fn new(names: &[HeaderName], life: Duration, last_expiry: u64) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        let nonce = *uuid::Uuid::new_v4().as_bytes();
        Self { names, nonce, life: 0, expiries: vec![last_expiry] }.stored_for(life)
    }

    /// The same index, stored for twice as long as a variant, and for a day at least. So it is seldom
    /// stored again for later variants.
    pub(super) fn stored_for(&self, variant: Duration) -> Self {
        Self { life: millis(variant.saturating_mul(2).max(A_DAY)), ..self.clone() }
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.nonce == other.nonce && self.last_expiry() == other.last_expiry()
    }

    pub(super) fn names(&self) -> Vec<HeaderName> {
        self.names.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
    }

    /// Whether all of these names are among its selecting header fields.
    pub(super) fn covers(&self, names: &[HeaderName]) -> bool {
        names.iter().all(|name| self.names.iter().any(|known| known == name.as_str()))
    }

    /// The key of the variant that a request selects. It has a fixed length, so that no header field
    /// makes a key too long.
    pub(super) fn key_for(&self, primary: &Key, request: &HeaderMap) -> Key {
        let mut selecting = Key::of("http-select").with(self.nonce);
        for (name, value) in rules::variant(&self.names(), request) {
            selecting = selecting.with(name).with(value);
        }
        Key::of("http-variant")
            .with(primary.digest().as_bytes())
            .with(selecting.digest().as_bytes())
    }

    pub(super) fn lifetimes(&self) -> Lifetimes {
        Lifetimes::fresh_for(Duration::from_millis(self.life))
    }

    /// The last expiry of its variants, or 0: a variant that is loaded now notes that.
    pub(super) fn last_expiry(&self) -> u64 {
        self.expiries.last().copied().unwrap_or_default()
    }

    /// Whether a stored variant is from before the last expiry. The store may not know that yet. A
    /// variant may also be newer than this copy of the index.
    pub(super) fn has_expired(&self, variant: &Note) -> bool {
        variant.last_expiry < self.last_expiry()
    }

    /// Whether a variant from before an expiry may not be served any more for this reason.
    pub(super) fn is_over(&self, variant: &Note, why: StaleReason) -> bool {
        let left = self.left_of(variant, variant.windows());
        match why {
            StaleReason::Revalidating => left.while_revalidate().is_zero(),
            _ => left.stale().is_zero(),
        }
    }

    /// What is left of the stale windows of a variant that an expiry made stale.
    pub(super) fn left_of(&self, variant: &Note, lifetimes: Lifetimes) -> Lifetimes {
        self.left_at(since_epoch(SystemTime::now()), variant, lifetimes)
    }

    /// The windows begin with the first expiry after the load. If it is not known any more, none is
    /// left.
    fn left_at(&self, now: u64, variant: &Note, lifetimes: Lifetimes) -> Lifetimes {
        let is_known = self.expiries.first().is_some_and(|first| *first <= variant.last_expiry);
        let stale_since = self.expiries.iter().find(|it| **it > variant.last_expiry);
        let Some(stale_since) = stale_since.filter(|_| is_known) else {
            return Lifetimes::default();
        };
        let since = Duration::from_millis(now.saturating_sub(*stale_since));
        Lifetimes::default()
            .stale_while_revalidate(lifetimes.while_revalidate().saturating_sub(since))
            .stale_if_error(lifetimes.if_error().saturating_sub(since))
            .kept_for_validation(lifetimes.for_validation().saturating_sub(since))
    }

    /// The same index, with its variants expired now. `None` if its last expiry is far in the future,
    /// because the clock of a process was wrong: the stale windows would not end.
    pub(super) fn expired(self) -> Option<Self> {
        let now = since_epoch(SystemTime::now());
        let is_possible = self.last_expiry() <= now.saturating_add(LONGEST_LEAD);
        is_possible.then(|| self.expired_at(now))
    }

    fn expired_at(mut self, now: u64) -> Self {
        let next = now.max(self.last_expiry().saturating_add(1));
        // Many processes may expire a URI for one event. The windows of a variant that was loaded
        // between two of them begin less than a second late.
        let before_last = self.expiries.len().checked_sub(2).map(|nth| self.expiries[nth]);
        if before_last.is_some_and(|first| next.saturating_sub(first) < A_BURST) {
            self.expiries.pop();
        }
        self.expiries.push(next);
        let forgotten = self.expiries.len().saturating_sub(MOST_EXPIRIES);
        self.expiries.drain(..forgotten);
        self
    }

    /// Writes it as it is stored: behind the byte that tells it from a response.
    pub(super) fn encode(&self, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        room.write_all(&[Self::FIRST_BYTE])?;
        postcard::to_io(self, &mut *room)?;
        Ok(())
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BoxError> {
        let Some((&Self::FIRST_BYTE, rest)) = bytes.split_first() else {
            return Err("no Vary index".into());
        };
        let index: Self = postcard::from_bytes(rest)?;
        if index.names.len() > MOST_NAMES {
            return Err("a Vary index with more names than are stored".into());
        }
        let is_sorted = index.expiries.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_sorted || !(1..=MOST_EXPIRIES).contains(&index.expiries.len()) {
            return Err("a Vary index with expiries that are not stored so".into());
        }
        Ok(index)
    }
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many selecting header fields a stored `Vary` index may have.
const MOST_NAMES: usize = 16;

/// How many expiries are known. A variant that was not loaded again since more than these counts as
/// gone.
const MOST_EXPIRIES: usize = 16;

/// How far the last expiry may be in the future, in milliseconds: clocks may differ by that.
const LONGEST_LEAD: u64 = 60 * 60 * 1_000;

/// How long expiries count together, in milliseconds.
const A_BURST: u64 = 1_000;

/// What is stored beside a response, to compute its age and freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// When it was received, in milliseconds since the Unix epoch.
    received: u64,
    /// Its age when it was received, in milliseconds.
    age: u64,
    /// How much longer it was fresh when it was received, in milliseconds.
    fresh: u64,
    /// How explicitly the response permits sharing.
    pub(super) consent: Consent,
    /// For a variant: the last expiry of the variants of its target when it was loaded. Otherwise 0.
    pub(super) last_expiry: u64,
    /// Its stale windows, in milliseconds.
    while_revalidate: u64,
    if_error: u64,
}

impl Note {
    /// `age` and `fresh` are those when it was received.
    pub(super) fn new(
        received: SystemTime,
        (age, fresh): (Duration, Duration),
        consent: Consent,
        last_expiry: u64,
        stale: StaleWindows,
    ) -> Self {
        Self {
            received: since_epoch(received),
            age: millis(age),
            fresh: millis(fresh),
            consent,
            last_expiry,
            while_revalidate: millis(stale.while_revalidate),
            if_error: millis(stale.if_error),
        }
    }

    /// The stale windows that it had when it was received.
    pub(super) fn windows(&self) -> Lifetimes {
        Lifetimes::default()
            .stale_while_revalidate(Duration::from_millis(self.while_revalidate))
            .stale_if_error(Duration::from_millis(self.if_error))
    }

    /// The age of the response. If the clock was set back, it is the age on arrival.
    pub(super) fn age(&self) -> Duration {
        Duration::from_millis(self.age).saturating_add(since(self.received))
    }

    /// How much longer it is fresh, by the freshness lifetime that it had on arrival.
    pub(super) fn fresh_for(&self) -> Option<Duration> {
        Duration::from_millis(self.fresh).checked_sub(since(self.received))
    }
}

/// A time, in milliseconds since the Unix epoch.
fn since_epoch(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// How long ago a time was, given in milliseconds since the Unix epoch. Zero if the clock was set
/// back.
fn since(then: u64) -> Duration {
    let then = UNIX_EPOCH.checked_add(Duration::from_millis(then));
    then.and_then(|then| SystemTime::now().duration_since(then).ok()).unwrap_or_default()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::rules::{Consent, StaleWindows};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn index() -> VaryIndex {
        VaryIndex::new(&[], MINUTE, 0)
    }

    /// A variant that is loaded now.
    fn variant_of(index: &VaryIndex) -> Note {
        let received = SystemTime::now();
        let stale = StaleWindows {
            while_revalidate: MINUTE,
            if_error: MINUTE * 2,
            ..StaleWindows::default()
        };
        let times = (Duration::ZERO, MINUTE);
        Note::new(received, times, Consent::Public, index.last_expiry(), stale)
    }

    /// How many seconds of its windows a variant has left at a time, in seconds.
    fn left(index: &VaryIndex, variant: &Note, now: u64) -> [u64; 2] {
        let left = index.left_at(now * 1_000, variant, variant.windows());
        [left.while_revalidate().as_secs(), left.if_error().as_secs()]
    }

    #[test]
    fn the_windows_of_a_variant_begin_with_the_first_expiry_after_its_load() {
        let first = index();
        let old = variant_of(&first);
        let second = first.expired_at(1_000_000);
        let newer = variant_of(&second);
        assert_eq!(left(&second, &old, 1_010), [50, 110]);
        let third = second.expired_at(1_050_000);
        assert_eq!(left(&third, &old, 1_060), [0, 60], "a second expiry does not prolong them");
        assert_eq!(left(&third, &newer, 1_060), [50, 110]);
        assert!(third.has_expired(&old) && third.has_expired(&newer));
        assert!(!third.has_expired(&variant_of(&third)));
    }

    #[test]
    fn a_variant_that_is_newer_than_a_copy_of_the_index_has_not_expired() {
        let older = index();
        let newer = older.clone().expired_at(1_000);
        assert!(!older.has_expired(&variant_of(&newer)));
        assert!(newer.has_expired(&variant_of(&older)));
    }

    #[test]
    fn a_variant_from_before_the_known_expiries_has_no_window() {
        let first = index();
        let old = variant_of(&first);
        let nth_expiry = |it: VaryIndex, nth| it.expired_at(1_000_000 + nth * A_BURST);
        let expired = (0..MOST_EXPIRIES as u64 - 1).fold(first, nth_expiry);
        assert_eq!(left(&expired, &old, 1_000), [60, 120]);
        let expired = nth_expiry(expired, MOST_EXPIRIES as u64);
        assert_eq!(left(&expired, &old, 1_000), [0, 0]);
        assert!(expired.has_expired(&old));
    }

    #[test]
    fn any_number_of_expiries_within_a_second_leaves_the_windows() {
        let first = index();
        let old = variant_of(&first);
        let second = first.expired_at(1_000_000);
        let between = variant_of(&second);
        let many = (0..100).fold(second, |it, nth| it.expired_at(1_000_000 + nth * 5));
        assert_eq!(left(&many, &old, 1_010), [50, 110]);
        assert_eq!(left(&many, &between, 1_010), [50, 110]);
        assert!(many.has_expired(&old) && many.has_expired(&between));
        let later = many.expired_at(1_050_000);
        assert_eq!(left(&later, &old, 1_010), [50, 110]);
    }

    #[test]
    fn each_expiry_is_told_from_the_others_even_if_the_clock_is_set_back() {
        let one = index().expired_at(2_000);
        let other = one.clone().expired_at(1_000);
        assert!(other.has_expired(&variant_of(&one)));
        assert_eq!(other.last_expiry(), 2_001);
    }

    /// The windows of the variant are one minute and two.
    #[test]
    fn each_stale_window_of_a_variant_is_over_at_its_own_time() {
        let old = variant_of(&index());
        let is_over = |seconds: u64| {
            let expired = index().expired_at(since_epoch(SystemTime::now()) - seconds * 1_000);
            [StaleReason::Revalidating, StaleReason::LoadFailed].map(|it| expired.is_over(&old, it))
        };
        assert_eq!(is_over(30), [false, false]);
        assert_eq!(is_over(90), [true, false]);
        assert_eq!(is_over(130), [true, true]);
    }

    #[test]
    fn an_index_whose_last_expiry_is_far_in_the_future_is_not_expired_but_replaced() {
        let now = since_epoch(SystemTime::now());
        assert!(index().expired_at(now + LONGEST_LEAD / 2).expired().is_some());
        assert!(index().expired_at(now + LONGEST_LEAD * 2).expired().is_none());
    }

    #[test]
    fn damaged_expiries_are_no_index() {
        let is_read = |expiries: Vec<u64>| {
            let mut encoded = EncodeBuffer::new(usize::MAX);
            VaryIndex { expiries, ..index() }.encode(&mut encoded).unwrap();
            VaryIndex::decode(&encoded.into_bytes()).is_ok()
        };
        let most = MOST_EXPIRIES as u64;
        assert!(is_read(vec![0]) && is_read((0..most).collect()));
        assert!(!is_read(vec![]) && !is_read((0..=most).collect()) && !is_read(vec![2, 1]));
    }
}
