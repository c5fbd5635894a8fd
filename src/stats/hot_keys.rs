//! The keys that are loaded most often, in little memory.

use std::sync::Mutex;

use crate::key::Key;
use crate::locked::locked;

/// A key that is loaded often. Given by [`Handle::hottest`](crate::service::Handle::hottest).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotKey {
    /// The key.
    pub key: Key,
    /// How often this process has loaded it, at most.
    pub loads: u64,
    /// By how much `loads` may be too high. A key that was rare before it became hot has taken the
    /// count of another one over.
    pub overcount: u64,
}

/// A sketch of the hottest keys: Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient
/// Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
///
/// A key that has a place is counted. A new key takes the place with the lowest count, and that
/// count. So each key with more than one in [`PLACES`] of all loads has a place.
#[derive(Debug, Default)]
pub(super) struct HotKeys(
    /// Held to count one load or to copy all, never across an `.await`.
    Mutex<Vec<HotKey>>,
);

impl HotKeys {
    pub(super) fn count(&self, key: &Key) {
        let mut places = locked(&self.0);
        if let Some(place) = places.iter_mut().find(|place| place.key == *key) {
            place.loads += 1;
            return;
        }
        if places.len() < PLACES {
            return places.push(HotKey { key: key.clone(), loads: 1, overcount: 0 });
        }
        let Some(coldest) = places.iter_mut().min_by_key(|place| place.loads) else { return };
        let overcount = coldest.loads;
        *coldest = HotKey { key: key.clone(), loads: overcount + 1, overcount };
    }

    /// The keys, hottest first.
    pub(super) fn hottest(&self) -> Vec<HotKey> {
        let mut hottest = locked(&self.0).clone();
        hottest.sort_by_key(|place| std::cmp::Reverse(place.loads));
        hottest
    }
}

/// How many keys are counted.
const PLACES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::of("item").with(number)
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let keys = HotKeys::default();
        for number in [3, 1, 3, 2, 3, 2] {
            keys.count(&key(number));
        }
        let exact = |number, loads| HotKey { key: key(number), loads, overcount: 0 };
        assert_eq!(keys.hottest(), [exact(3, 3), exact(2, 2), exact(1, 1)]);
    }

    #[test]
    fn a_key_with_a_twentieth_of_all_loads_is_found_among_thousands() {
        let keys = HotKeys::default();
        for number in 0..10_000 {
            keys.count(&key(if number % 20 == 0 { 7 } else { 100 + number }));
        }
        let hottest = keys.hottest();
        assert_eq!(hottest.len(), PLACES);
        assert_eq!(hottest[0].key, key(7));
        let HotKey { loads, overcount, .. } = hottest[0];
        assert!(loads - overcount <= 500 && 500 <= loads, "{hottest:?}");
    }
}
