//! The kinds of caches under test: what differs between them is their lifetimes and their tags.

use std::time::Duration;

use bellwether::{Cache, ConfigError, Tag, Wait};
use bellwether_redis::RedisStore;
use rand::Rng;

use crate::row::Row;

/// How many rows each kind has.
pub(crate) const ROWS: u64 = 1_024;
/// How many of them share a tag.
const GROUP: u64 = 16;
/// How many of them are read most.
const HOT: u64 = 48;
pub(crate) const GROUPS: u64 = ROWS / GROUP;

/// One kind of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Entries that end all the time.
    Short,
    /// Entries that live until they are invalidated.
    Long,
    /// Stale windows and early refreshes.
    Soft,
    /// Entries that are refreshed before they end.
    Early,
    /// Tags that are known before the load.
    Tagged,
    /// Tags that are known from the value.
    Labelled,
    /// Values that their writer puts.
    Put,
    /// A key for each burst, which is never invalidated.
    Burst,
}

/// Those whose rows change.
pub(crate) const CHANGING: [Kind; 7] =
    [Kind::Short, Kind::Long, Kind::Soft, Kind::Early, Kind::Tagged, Kind::Labelled, Kind::Put];

/// One row of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowKey {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
}

impl Kind {
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Soft => "soft",
            Self::Early => "early",
            Self::Tagged => "tagged",
            Self::Labelled => "labelled",
            Self::Put => "put",
            Self::Burst => "burst",
        }
    }

    pub(crate) fn has_groups(self) -> bool {
        matches!(self, Self::Tagged | Self::Labelled)
    }

    fn ttl(self) -> Duration {
        Duration::from_millis(match self {
            Self::Short => 300,
            Self::Long | Self::Put => 60_000,
            Self::Soft => 500,
            Self::Early => 1_000,
            Self::Tagged | Self::Labelled => 30_000,
            Self::Burst => 600_000,
        })
    }

    /// How long an entry lives at most, from its commit on.
    pub(crate) fn life(self) -> Duration {
        self.ttl() + self.stale_window()
    }

    /// For how long stale answers may be served after an expiry, at most.
    pub(crate) fn stale_window(self) -> Duration {
        match self {
            Self::Soft => Duration::from_secs(5),
            Self::Tagged | Self::Labelled => Duration::from_secs(2),
            _ => Duration::ZERO,
        }
    }

    /// The cache of this kind over a store.
    pub(crate) fn cache(self, store: RedisStore) -> Result<Cache<u64, Row>, ConfigError> {
        let mut cache = Cache::builder(self.name(), store)
            .ttl(self.ttl())
            .wait(Wait::at_most(WAIT))
            .load_timeout(LOAD_TIMEOUT)
            .stale_while_revalidate(self.stale_window() / 2)
            .stale_if_error(self.stale_window());
        if matches!(self, Self::Soft | Self::Early) {
            cache = cache.refresh_early(1.0);
        }
        if self == Self::Labelled {
            cache = cache.answer_tags(|row: &Row| {
                [tag(Self::Labelled, group_of(row.key & u64::from(u32::MAX)))]
            });
        }
        cache.build()
    }
}

/// How long a caller waits for the load of another one.
const WAIT: Duration = Duration::from_secs(4);
const LOAD_TIMEOUT: Duration = Duration::from_secs(6);
/// The longest that a caller without a deadline can wait: for another load, for its own load, and for a store that times out before and after.
pub(crate) const LONGEST: Duration = Duration::from_secs(16);

impl RowKey {
    /// As the source and the rows know it.
    pub(crate) fn id(self) -> u64 {
        ((self.kind.index() as u64) << 32) | self.number
    }

    pub(crate) fn name_of(id: u64) -> String {
        let kind = CHANGING.get((id >> 32) as usize).copied().unwrap_or(Kind::Burst);
        format!("{} {}", kind.name(), id & u64::from(u32::MAX))
    }

    /// The rows that share its tags, if it has any.
    pub(crate) fn group(self) -> Option<u64> {
        self.kind.has_groups().then(|| group_of(self.number))
    }

    /// A row: mostly one of a few.
    pub(crate) fn draw(kind: Kind, rng: &mut impl Rng) -> Self {
        let number = match rng.random_range(0..100) {
            0..70 => rng.random_range(0..HOT),
            70..95 => rng.random_range(0..ROWS / 2),
            _ => rng.random_range(0..ROWS),
        };
        Self { kind, number }
    }

    /// A row: often one of a few.
    pub(crate) fn draw_evenly(kind: Kind, rng: &mut impl Rng) -> Self {
        let most = if rng.random_ratio(2, 5) { HOT } else { ROWS };
        Self { kind, number: rng.random_range(0..most) }
    }
}

fn group_of(number: u64) -> u64 {
    number / GROUP
}

/// The group of a row, as the source knows it.
pub(crate) fn group_of_id(id: u64) -> Option<u64> {
    let kind = CHANGING.get((id >> 32) as usize).copied()?;
    let group = group_of(id & u64::from(u32::MAX));
    kind.has_groups().then(|| group_id(kind, group))
}

pub(crate) fn group_id(kind: Kind, group: u64) -> u64 {
    ((kind.index() as u64) << 32) | group
}

pub(crate) fn tag(kind: Kind, group: u64) -> Tag {
    Tag::of(kind.name()).with(group)
}
