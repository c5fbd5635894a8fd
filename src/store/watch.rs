//! Watches: hints that a key has changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::key::Digest;

/// Tells of changes of one key, as far as this process hears of them.
#[derive(Debug)]
pub struct Watch {
    heard: Option<Heard>,
    /// What else is to be told.
    other: Option<Box<Self>>,
}

#[derive(Debug)]
struct Heard {
    changes: Arc<Changes>,
    /// How many of them are known.
    known: u64,
    watchers: Arc<Registry>,
    digest: Digest,
}

impl Watch {
    /// A watch that never tells anything, for stores that hear of nothing.
    pub fn silent() -> Self {
        Self { heard: None, other: None }
    }

    /// A watch that tells what either of the two tells.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        if self.is_silent() {
            return other;
        }
        if !other.is_silent() {
            let others = self.other.take().map(|it| *it);
            self.other = Some(Box::new(others.unwrap_or_else(Self::silent).or(other)));
        }
        self
    }

    /// Whether it never tells anything.
    pub fn is_silent(&self) -> bool {
        self.heard.is_none() && self.other.is_none()
    }

    /// Waits for a change after this watch was made, or after this last returned.
    ///
    /// # Cancel safety
    /// A change that comes after it was dropped is told the next time.
    pub async fn changed(&mut self) {
        match (&mut self.heard, &mut self.other) {
            (None, None) => future::pending().await,
            (Some(heard), None) => heard.changed().await,
            (None, Some(other)) => Box::pin(other.changed()).await,
            (Some(heard), Some(other)) => tokio::select! {
                () = heard.changed() => {}
                () = Box::pin(other.changed()) => {}
            },
        }
    }
}

impl Heard {
    async fn changed(&mut self) {
        loop {
            let mut told = pin!(self.changes.told.notified());
            // Before it looks: a change after that is told.
            told.as_mut().enable();
            let count = self.changes.count.load(Ordering::Acquire);
            if count != self.known {
                self.known = count;
                return;
            }
            told.await;
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let mut keys = self.watchers.keys();
        if let Entry::Occupied(mut watched) = keys.entry(self.digest) {
            watched.get_mut().watches -= 1;
            if watched.get().watches == 0 {
                watched.remove();
            }
        }
    }
}

/// Everybody in this process who watches a key of one store. For those who implement a store.
#[derive(Clone, Debug, Default)]
pub struct Watchers(Arc<Registry>);

#[derive(Default)]
struct Registry {
    /// Guards the keys only: held for a map operation, never across an `.await`, and nobody is told
    /// anything while it is.
    keys: Mutex<HashMap<Digest, Watched>>,
}

#[derive(Default)]
struct Watched {
    changes: Arc<Changes>,
    /// How many watches there are: the last one to go takes the key with it. (The count of references
    /// lags behind, as a watch lets go of them after the lock is.)
    watches: usize,
}

/// How often a key has changed. Far smaller than a channel: each lock that is taken has one.
#[derive(Debug, Default)]
struct Changes {
    count: AtomicU64,
    told: Notify,
}

impl Changes {
    fn tell(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.told.notify_waiters();
    }
}

impl Watchers {
    /// A watch of one key.
    pub fn watch(&self, digest: Digest) -> Watch {
        let mut keys = self.0.keys();
        let watched = keys.entry(digest).or_default();
        watched.watches += 1;
        let changes = Arc::clone(&watched.changes);
        drop(keys);
        let known = changes.count.load(Ordering::Acquire);
        let heard = Heard { changes, known, watchers: Arc::clone(&self.0), digest };
        Watch { heard: Some(heard), other: None }
    }

    /// Tells those who watch a key that it has changed.
    pub fn tell(&self, digest: &Digest) {
        let changes = self.0.keys().get(digest).map(|watched| Arc::clone(&watched.changes));
        if let Some(changes) = changes {
            changes.tell();
        }
    }

    /// Tells everybody: what has changed is not known, or messages may have been lost.
    pub fn tell_all(&self) {
        let all: Vec<_> =
            self.0.keys().values().map(|watched| Arc::clone(&watched.changes)).collect();
        all.iter().for_each(|changes| changes.tell());
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.0.keys().len()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Registry {
    fn keys(&self) -> MutexGuard<'_, HashMap<Digest, Watched>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("watched", &self.keys().len()).finish()
    }
}
