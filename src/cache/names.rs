//! The names of the caches of this process, to warn of two that differ in their options.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use crate::config_error::ConfigError;
use crate::locked::locked;
use crate::policy::Policy;
use crate::stats::Statistics;

/// The options of the caches that are there, by their names. Held to look one up, never across an
/// `.await`.
static CACHES: Mutex<BTreeMap<Arc<str>, LiveCache>> = Mutex::new(BTreeMap::new());

/// Whether a cache is still there, and its options.
type LiveCache = (Weak<Statistics>, Policy);

/// The name that is a part of each key: `item@2` is version 2 of `item`.
///
/// # Errors
/// If the name itself ends like that: the two would have the same keys.
pub(super) fn versioned(name: Arc<str>, version: Option<u32>) -> Result<Arc<str>, ConfigError> {
    if name.rsplit_once('@').is_some_and(|(_, end)| end.parse::<u32>().is_ok()) {
        let reason = "the name of a cache must not end like a version: use `.version(..)`";
        return Err(ConfigError::Key { given: name.to_string(), reason });
    }
    Ok(match version {
        Some(version) => format!("{name}@{version}").into(),
        None => name,
    })
}

/// Warns if another cache of this name has other options.
pub(super) fn register(name: &Arc<str>, statistics: &Arc<Statistics>, policy: &Policy) {
    let mut caches = locked(&CACHES);
    // Not each time: a program may have a hundred thousand.
    if caches.len().is_power_of_two() {
        caches.retain(|_, (alive, _)| alive.strong_count() > 0);
    }
    let this = || (Arc::downgrade(statistics), policy.clone());
    let known = caches.entry(Arc::clone(name)).or_insert_with(this);
    if known.0.strong_count() == 0 {
        *known = this();
    }
    if known.1 != *policy {
        let message = "two caches of one name have different options: build one and clone it, or \
                       give each a name of its own";
        statistics.warn(Statistics::ONCE, [message, ""], None, None);
    }
}
