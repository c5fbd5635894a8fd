//! What a caller does next, by chance.

use rand::Rng;
use rand::rngs::SmallRng;

use crate::host::Millis;
use crate::operations::{Get, Telling};
use crate::plan::RunPlan;
use crate::promises::ChangeOf;

pub(crate) enum DrawnOperation {
    One(Get),
    /// For some keys, from this one on.
    Many(Get),
    /// A value that is stored.
    Lookup(u64),
    Change(ChangeOf, Telling),
    /// A change that a database records. A follower takes it after so many milliseconds.
    Recorded(ChangeOf, Millis),
}

impl DrawnOperation {
    /// Also draws after how many polls the caller leaves. None if it does not.
    pub(crate) fn draw(random: &mut SmallRng, plan: &RunPlan) -> (Self, Option<u32>) {
        let leaves_after = random.random_ratio(1, plan.leaving).then(|| random.random_range(1..5));
        let key = random.random_range(0..MOST_KEYS) % plan.keys;
        let operation = if random.random_ratio(1, plan.changes) {
            Self::draw_change(random, plan, key)
        } else if random.random_ratio(1, 20) {
            Self::Lookup(key)
        } else {
            let mut load = || random.random_range(0..=plan.longest_load);
            let get = Get {
                key,
                load: [load(), load()],
                load_fails: plan.failures.is_some_and(|one_of| random.random_ratio(1, one_of)),
                deadline: random.random_ratio(1, 20).then(|| random.random_range(5..400)),
                forces_refresh: random.random_ratio(1, 100),
            };
            if random.random_ratio(1, 10) { Self::Many(get) } else { Self::One(get) }
        };
        (operation, leaves_after)
    }

    fn draw_change(random: &mut SmallRng, plan: &RunPlan, key: u64) -> Self {
        let is_of_tag = plan.tags > 0 && random.random_ratio(1, 3);
        let what = if is_of_tag { ChangeOf::Tag(key % plan.tags) } else { ChangeOf::Key(key) };
        match random.random_range(0..4) {
            kind if plan.is_recorded || kind == 2 && random.random() => {
                Self::Recorded(what, random.random_range(0..LATEST_FOLLOWER))
            }
            0 => Self::Change(what, Telling::Expire),
            1 if !is_of_tag => Self::Change(what, Telling::Put),
            _ => Self::Change(what, Telling::Invalidate),
        }
    }
}

/// A multiple of all numbers of keys.
const MOST_KEYS: u64 = 20;

/// How long after its commit a follower takes a row, at most.
const LATEST_FOLLOWER: Millis = 400;
