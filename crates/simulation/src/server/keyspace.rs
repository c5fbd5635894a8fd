//! What a server stores: values with an expiry.

use std::collections::HashMap;
use std::sync::Arc;

/// All values of a server, by name. Clones share them until one changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    values: Arc<HashMap<Vec<u8>, StoredName>>,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredName {
    pub(crate) value: StoredValue,
    /// In milliseconds of the server's clock.
    pub(crate) expires_at: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) enum StoredValue {
    Text(Vec<u8>),
    /// A value of another program: it is only there.
    Hash,
}

impl Keyspace {
    /// The value, and whether one has expired before.
    pub(crate) fn find(&mut self, name: &[u8], now: i64) -> (Option<&StoredName>, bool) {
        let is_late = |stored: &StoredName| stored.expires_at.is_some_and(|at| now > at);
        match self.values.get(name) {
            None => (None, false),
            Some(stored) if is_late(stored) => {
                self.remove(name);
                (None, true)
            }
            Some(_) => (self.values.get(name), false),
        }
    }

    /// The same, to change it.
    pub(crate) fn find_mut(&mut self, name: &[u8]) -> Option<&mut StoredName> {
        Arc::make_mut(&mut self.values).get_mut(name)
    }

    pub(crate) fn insert(&mut self, name: &[u8], stored: StoredName) {
        Arc::make_mut(&mut self.values).insert(name.to_vec(), stored);
    }

    pub(crate) fn take(&mut self, name: &[u8]) -> Option<StoredName> {
        Arc::make_mut(&mut self.values).remove(name)
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.take(name).is_some()
    }

    /// The names in order, without those that have expired.
    pub(crate) fn names(&self, now: i64) -> Vec<Vec<u8>> {
        let live = self.values.iter().filter(|(_, it)| it.expires_at.is_none_or(|at| now <= at));
        let mut names: Vec<_> = live.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }
}
