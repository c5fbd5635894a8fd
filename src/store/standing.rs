//! What the tags of an entry have made of it since it was loaded.

use std::time::Duration;

use super::entry::{Entry, TagEpoch};
use crate::duration::micros;
use crate::key::Digest;

/// The current state of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "stores make them of what they have read")]
pub struct TagState {
    /// The current hard epoch.
    pub hard: u64,
    /// The current soft epoch.
    pub soft: u64,
    /// When `soft` began, in us of the store's clock.
    pub expired_at: u64,
    /// Set if it expired over a time.
    pub spread: Option<Spread>,
}

/// An expiry over a time instead of at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "stores make them of what they have read")]
pub struct Spread {
    /// The soft epoch before the expiry. Its entries become stale one after the other, and older
    /// ones are stale.
    pub before: u64,
    /// The time.
    pub over: Duration,
}

/// What the tags of an entry have made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::exhaustive_enums, reason = "a store handles each of them")]
pub enum Standing {
    /// It is as good as none.
    Gone,
    /// It is stale from this time of the store's clock, in us. That may be in the future.
    StaleFrom(u64),
    /// Its tags have not changed.
    Current,
}

impl TagState {
    /// What this tag has made of an entry of a key. `now` is the time by the store's clock, in us. An expiry
    /// that is later was before the clock was set back, and the entry is stale from now on.
    pub fn standing(&self, seen: &TagEpoch, key: &Digest, now: impl FnOnce() -> u64) -> Standing {
        if seen.hard != self.hard {
            return Standing::Gone;
        }
        if seen.soft == self.soft {
            return Standing::Current;
        }
        let now = now();
        let is_later = self.expired_at > now.saturating_add(DRIFT);
        Standing::StaleFrom(match self.spread {
            Some(Spread { before, over }) if seen.soft == before && !is_later => {
                self.expired_at.saturating_add(share_of(key, micros(over)))
            }
            _ => self.expired_at.min(now),
        })
    }
}

impl Standing {
    /// What is left of an entry. `now` is the time by the store's clock, in us.
    pub fn apply(self, entry: Entry, now: u64) -> Option<Entry> {
        let from = match self {
            Self::Current => return Some(entry),
            Self::Gone => return None,
            Self::StaleFrom(from) => from,
        };
        let end = from.saturating_add(micros(entry.lifetimes().stale()));
        let left = Duration::from_micros(end.saturating_sub(now));
        let remaining = entry.remaining().map(|remaining| remaining.min(left));
        (!left.is_zero()).then(|| entry.with_remaining(remaining))
    }
}

/// How far the clocks of two servers may differ.
const DRIFT: u64 = 1_000_000;

/// The part of a span that is the share of a key: keys share it evenly, and a key has the same
/// share each time.
fn share_of(key: &Digest, span: u64) -> u64 {
    let [.., a, b, c, d] = *key.as_bytes();
    let share = u128::from(u32::from_be_bytes([a, b, c, d]));
    u64::try_from((u128::from(span) * share) >> 32).unwrap_or(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::lifetimes::Lifetimes;
    use crate::store::{Draft, Value};

    const SECOND: u64 = 1_000_000;

    fn entry(lifetimes: Lifetimes) -> Entry {
        let draft = Draft::new(Value::new(vec![].into()), 1, lifetimes);
        draft.into_entry(1, 0, Some(lifetimes.life()), Vec::new())
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_entry_of_another_hard_epoch_is_gone() {
        let state = TagState { hard: 2, soft: 2, expired_at: 2, spread: None };
        let key = Key::of("item").digest();
        let standing = |hard, soft| state.standing(&TagEpoch { tag: key, hard, soft }, &key, || 9);
        assert_eq!(standing(2, 2), Standing::Current);
        assert_eq!(standing(1, 2), Standing::Gone);
        assert_eq!(standing(3, 3), Standing::Gone);
        assert_eq!(standing(2, 1), Standing::StaleFrom(2));
    }

    #[test]
    fn an_expired_entry_has_its_stale_window_from_the_expiry_on() {
        let stale = Lifetimes::fresh_for(seconds(60)).stale_while_revalidate(seconds(10));
        let at = |now| Standing::StaleFrom(100 * SECOND).apply(entry(stale), now * SECOND);
        assert_eq!(at(99).and_then(|entry| entry.fresh_for()), Some(seconds(1)));
        assert_eq!(at(104).and_then(|entry| entry.stale_for()), Some(seconds(4)));
        assert!(at(110).is_none());
        let unmerciful = entry(Lifetimes::fresh_for(seconds(60)));
        assert!(Standing::StaleFrom(1).apply(unmerciful, 1).is_none());
    }

    #[test]
    fn an_expired_entry_is_stale_though_the_clock_is_behind_the_expiry() {
        let key = Key::of("item").digest();
        for spread in [None, Some(Spread { before: 1, over: seconds(100) })] {
            let state = TagState { hard: 0, soft: 2, expired_at: 9 * SECOND, spread };
            let seen = TagEpoch { tag: key, hard: 0, soft: 1 };
            let standing = state.standing(&seen, &key, || 4 * SECOND);
            assert_eq!(standing, Standing::StaleFrom(4 * SECOND));
        }
    }

    #[test]
    fn a_spread_expiry_reaches_keys_one_after_the_other() {
        let spread = Some(Spread { before: 1, over: seconds(100) });
        let state = TagState { hard: 0, soft: 2, expired_at: 0, spread };
        let mut per_decade = [0; 10];
        for number in 0..10_000 {
            let key = Key::of("item").with(number).digest();
            let seen = TagEpoch { tag: key, hard: 0, soft: 1 };
            let Standing::StaleFrom(from) = state.standing(&seen, &key, || 0) else {
                panic!("current")
            };
            assert_eq!(state.standing(&seen, &key, || 1), Standing::StaleFrom(from));
            per_decade[usize::try_from(from / (10 * SECOND)).unwrap()] += 1;
            // Entries from before an earlier expiry do not come to life again.
            assert_eq!(
                state.standing(&TagEpoch { tag: key, hard: 0, soft: 0 }, &key, || 0),
                Standing::StaleFrom(0)
            );
        }
        assert!(per_decade.iter().all(|count| (800..1200).contains(count)), "{per_decade:?}");
    }
}
