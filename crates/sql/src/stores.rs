//! `FollowedStores`: applies changes to all stores.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use bellwether::StoreError;
use bellwether::store::{Store, Withdrawal, WithdrawalTarget};
use bellwether_redis::RedisStore;
use futures_util::stream::{self, StreamExt};

/// The stores of a follower. A row is applied when all of them have it.
#[derive(Clone, Debug)]
pub(crate) struct FollowedStores(pub(crate) Vec<RedisStore>);

/// What each store does, by its place, and the rows that ask for it, by theirs.
pub(crate) type Wanted = HashMap<(usize, WithdrawalTarget, Withdrawal), Vec<usize>>;

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// The stores that have failed, of each row for which one has.
    pub(crate) failed: BTreeMap<usize, BTreeSet<usize>>,
    /// How many operations have succeeded.
    pub(crate) succeeded: usize,
    pub(crate) error: Option<StoreError>,
}

impl FollowedStores {
    /// The places of all stores.
    pub(crate) fn places(&self) -> Range<usize> {
        0..self.0.len()
    }

    /// Makes changes in the stores.
    pub(crate) async fn apply(&self, wanted: Wanted) -> Reached {
        let stores = self.0.clone();
        let each = wanted.into_iter().map(move |((place, target, change), rows)| {
            let store = stores[place].clone();
            async move { (store.withdraw(target, change).await, place, rows) }
        });
        let mut ended = stream::iter(each).buffer_unordered(AT_ONCE);
        let mut reached = Reached::default();
        while let Some((result, place, rows)) = ended.next().await {
            if let Err(error) = result {
                for row in rows {
                    reached.failed.entry(row).or_default().insert(place);
                }
                reached.error = Some(error);
            } else {
                reached.succeeded += 1;
            }
        }
        reached
    }
}

/// How many changes are under way at once.
const AT_ONCE: usize = 256;
