//! What a server stores: values with an expiry.

use std::collections::HashMap;

/// All values of a server, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    values: HashMap<Vec<u8>, StoredName>,
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
    pub(crate) fn find(&mut self, name: &[u8], now: i64) -> (Option<&mut StoredName>, bool) {
        let is_late = |stored: &StoredName| stored.expires_at.is_some_and(|at| now > at);
        if self.values.get(name).is_some_and(is_late) {
            self.values.remove(name);
            return (None, true);
        }
        (self.values.get_mut(name), false)
    }

    pub(crate) fn insert(&mut self, name: &[u8], stored: StoredName) {
        self.values.insert(name.to_vec(), stored);
    }

    pub(crate) fn take(&mut self, name: &[u8]) -> Option<StoredName> {
        self.values.remove(name)
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.values.remove(name).is_some()
    }

    /// The names in order, without those that have expired.
    pub(crate) fn names(&self, now: i64) -> Vec<Vec<u8>> {
        let live = self.values.iter().filter(|(_, it)| it.expires_at.is_none_or(|at| now <= at));
        let mut names: Vec<_> = live.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }
}
