//! `FollowedStores`: applies changes to all stores.

use std::collections::{BTreeSet, HashMap};

use bellwether::store::{Change, ChangeTarget, Store, Tags};
use bellwether::{Key, StoreError};
use bellwether_redis::RedisStore;
use futures_util::stream::{self, StreamExt};

/// The stores of a follower. A row is applied when all of them have it.
#[derive(Clone, Debug)]
pub(crate) struct FollowedStores(pub(crate) Vec<RedisStore>);

/// What a store does, and the rows that ask for it, by their places.
pub(crate) type Wanted = HashMap<(ChangeTarget, Change), Vec<usize>>;

impl FollowedStores {
    /// Makes changes in all stores, and gives the places of the rows for which one has failed, and an error.
    pub(crate) async fn apply(&self, wanted: Wanted) -> (BTreeSet<usize>, Option<StoreError>) {
        let stores = self.0.clone();
        let each = wanted.into_iter().flat_map(move |(wanted, rows)| {
            stores.clone().into_iter().map(move |store| (store, wanted.clone(), rows.clone()))
        });
        let each = each.map(|(store, (target, change), rows)| async move {
            (store.change(target, change).await, rows)
        });
        let mut ended = stream::iter(each).buffer_unordered(AT_ONCE);
        let (mut failed, mut error) = (BTreeSet::new(), None);
        while let Some((result, rows)) = ended.next().await {
            if let Err(it) = result {
                failed.extend(rows);
                error = Some(it);
            }
        }
        (failed, error)
    }

    /// How often the stores have connected. If that grows, a server may have lost what it had acknowledged. It reads
    /// a key, since a store notices the loss of its connection only if it is used.
    pub(crate) async fn connects(&self) -> u64 {
        for store in &self.0 {
            // An error says that there is no connection, and its end counts as one.
            _ = store.lookup(Key::of("bellwether.follower"), Tags::none()).await;
        }
        self.0.iter().map(|store| store.stats().connects).sum()
    }
}

/// How many changes are under way at once.
const AT_ONCE: usize = 256;
