//! How long after an invalidation the last old answer was given, by what gave it.
//!
//! Workers note what their reads see, and the hub keeps the latest of all workers for each invalidation.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::floors::Subject;
use crate::tally::Tally;

/// What answered, and from when on its old answers are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(crate) enum Place {
    /// A store without near copies.
    Redis,
    /// A store with near copies, through which the invalidation was made.
    OwnNear,
    /// A store with near copies. The invalidation was made through another store.
    OtherNear,
    /// A store without near copies. The change was recorded in the database.
    RedisByFollower,
    /// A store with near copies. The change was recorded in the database.
    NearByFollower,
}

pub(crate) const PLACES: [Place; 5] =
    [Place::Redis, Place::OwnNear, Place::OtherNear, Place::RedisByFollower, Place::NearByFollower];

impl Place {
    /// How its row of the report begins.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::OwnNear => "near copies, invalidated by their own process",
            Self::OtherNear => "near copies, invalidated by another process",
            Self::RedisByFollower => "Redis, from a commit that a follower applies",
            Self::NearByFollower => "near copies, from a commit that a follower applies",
        }
    }
}

/// An invalidation that has returned, or a recorded change that is committed, and where it was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(crate) struct Invalidation {
    pub(crate) subject: Subject,
    pub(crate) version: u64,
    pub(crate) at: u64,
    pub(crate) place: Place,
}

/// For each invalidation, how long after it the last old answer's read began. Zero if there was none.
#[derive(Debug, Default)]
pub(crate) struct Late(HashMap<Invalidation, u64>);

impl Late {
    pub(crate) fn note(&mut self, invalidation: Invalidation, micros: u64) {
        let latest = self.0.entry(invalidation).or_default();
        *latest = micros.max(*latest);
    }

    pub(crate) fn add(&mut self, noted: Vec<(Invalidation, u64)>) {
        for (invalidation, micros) in noted {
            self.note(invalidation, micros);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<(Invalidation, u64)> {
        self.0.drain().collect()
    }

    /// Adds them to the tally, apart if there was no fault from one moment to another.
    pub(crate) fn measure(&self, is_calm: impl Fn(u64, u64) -> bool, tally: &mut Tally) {
        for (Invalidation { at, place, .. }, micros) in &self.0 {
            tally.measure(&measured(*place, is_calm(*at, at + micros)), *micros);
        }
    }
}

/// How a tally names them.
pub(crate) fn measured(place: Place, is_calm: bool) -> String {
    let when = if is_calm { "no fault" } else { "faults" };
    format!("{MEASURED}{}, {when}", place.name())
}

pub(crate) const MEASURED: &str = "last old answer: ";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{Kind, RowKey};

    #[test]
    fn the_latest_old_answer_of_all_workers_counts() {
        let subject = Subject::row(RowKey { kind: Kind::Long, number: 7 }).unwrap();
        let of = |version, at| Invalidation { subject, version, at, place: Place::OtherNear };
        let mut late = Late::default();
        late.add(vec![(of(1, 10), 200), (of(2, 20), 0)]);
        late.add(vec![(of(1, 10), 100)]);
        late.note(of(1, 10), 0);
        let mut tally = Tally::default();
        late.measure(|from, to| (from, to) != (20, 20), &mut tally);
        let calm = &tally.times[&measured(Place::OtherNear, true)];
        assert_eq!(calm.pairs().collect::<Vec<_>>(), [(200, 1)]);
        let faulty = &tally.times[&measured(Place::OtherNear, false)];
        assert_eq!(faulty.pairs().collect::<Vec<_>>(), [(0, 1)]);
    }
}
