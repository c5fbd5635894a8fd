//! Watches: hints that a key has changed, some with the entry that was stored.

use std::collections::{HashMap, hash_map};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::{future, mem};

use tokio::sync::Notify;

use super::entry::Entry;
use crate::key::Digest;
use crate::locked::locked;

/// Reports the changes of one key that this process learns of.
#[derive(Debug)]
pub struct Watch {
    key_watch: Option<KeyWatch>,
    /// Of another store, which may also change the key.
    beside: Option<KeyWatch>,
    is_interrupted: bool,
}

#[derive(Debug)]
struct KeyWatch {
    changes: Arc<Changes>,
    /// How many of them were reported already.
    known: u64,
    watchers: Watchers,
    digest: Digest,
}

impl Watch {
    /// A watch that never reports a change, for stores that learn of none.
    pub fn silent() -> Self {
        Self { key_watch: None, beside: None, is_interrupted: false }
    }

    /// The same watch, which also reports the changes that another one does. That must be of one store.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        Self { beside: other.key_watch, ..self }
    }

    /// The same watch, of a store that may learn of no changes now: it lacks a right, or has no connection
    /// for messages yet. Waits that this prolongs count as
    /// [missed pushes](crate::stats::WakeStats::missed_push).
    pub fn interrupted(self) -> Self {
        Self { is_interrupted: true, ..self }
    }

    /// Whether it may report no change, so that its owner has to ask.
    pub fn is_silent(&self) -> bool {
        self.key_watch.is_none() || self.is_interrupted
    }

    /// Whether it may report no change now, and its store does so otherwise.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Whether there was a change that [`changed`](Self::changed) has not returned for.
    pub fn has_changed(&self) -> bool {
        let has_changed = |watch: &KeyWatch| locked(&watch.changes.told).count != watch.known;
        self.key_watch.iter().chain(&self.beside).any(has_changed)
    }

    /// Waits for a change since the watch was made, or since this last returned. It may never return
    /// if the watch [is silent](Self::is_silent). Gives the entry that was stored, if that is the only
    /// change and the store tells it: see [`Store::watch`](super::Store::watch).
    ///
    /// # Cancel safety
    /// Dropping it loses no change: the next call returns at once.
    pub async fn changed(&mut self) -> Option<Entry> {
        let mut changed = pin!(KeyWatch::changed(self.key_watch.as_mut()));
        let mut beside = pin!(KeyWatch::changed(self.beside.as_mut()));
        let either = |cx: &mut Context<'_>| match changed.as_mut().poll(cx) {
            Poll::Pending => beside.as_mut().poll(cx),
            changed => changed,
        };
        future::poll_fn(either).await
    }
}

impl KeyWatch {
    async fn changed(watch: Option<&mut Self>) -> Option<Entry> {
        let Some(Self { changes, known, .. }) = watch else { return future::pending().await };
        loop {
            let mut changed = pin!(changes.changed.notified());
            // Registered before the count is read, so that no later change is missed.
            changed.as_mut().enable();
            if let Some(entry) = changes.since(known) {
                return entry;
            }
            changed.await;
        }
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        let mut keys = locked(&self.watchers.0);
        if let hash_map::Entry::Occupied(mut watched) = keys.entry(self.digest) {
            watched.get_mut().watches -= 1;
            if watched.get().watches == 0 {
                watched.remove();
            }
        }
    }
}

/// All watches of one store in this process, for implementations of stores. Locked for a map
/// operation, never across an `.await` or a notification.
#[derive(Clone, Default)]
pub struct Watchers(Arc<Mutex<HashMap<Digest, Watched>>>);

#[derive(Default)]
struct Watched {
    changes: Arc<Changes>,
    /// How many watches there are. The last one removes the key. (The reference count of `changes`
    /// cannot be used: a watch drops its reference after the lock.)
    watches: usize,
}

/// The changes of a key. Much smaller than a channel, since every held lock has one.
#[derive(Debug, Default)]
struct Changes {
    /// Held for a read or a write of it, never across an `.await`.
    told: Mutex<Told>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Told {
    /// How often the key has changed.
    count: u64,
    /// The entry that came with the last change.
    entry: Option<Box<Entry>>,
}

impl Changes {
    fn tell(&self, entry: Option<Box<Entry>>) {
        let mut told = locked(&self.told);
        told.count += 1;
        let earlier = mem::replace(&mut told.entry, entry);
        drop(told);
        drop(earlier);
        self.changed.notify_waiters();
    }

    /// The changes that were not reported before. Of several, one may have been an invalidation.
    fn since(&self, known: &mut u64) -> Option<Option<Entry>> {
        let told = locked(&self.told);
        let new = told.count - *known;
        *known = told.count;
        (new > 0).then(|| told.entry.as_deref().filter(|_| new == 1).cloned())
    }
}

impl Watchers {
    /// A watch of one key.
    pub fn watch(&self, digest: Digest) -> Watch {
        let mut keys = locked(&self.0);
        let watched = keys.entry(digest).or_default();
        watched.watches += 1;
        let changes = Arc::clone(&watched.changes);
        drop(keys);
        let known = locked(&changes.told).count;
        let key_watch = KeyWatch { changes, known, watchers: self.clone(), digest };
        Watch { key_watch: Some(key_watch), beside: None, is_interrupted: false }
    }

    /// Notifies the watches of a key that it has changed, with the entry that was stored, if that is
    /// known.
    pub fn tell(&self, digest: &Digest, stored: Option<Entry>) {
        let changes = locked(&self.0).get(digest).map(|watched| Arc::clone(&watched.changes));
        if let Some(changes) = changes {
            changes.tell(stored.map(Box::new));
        }
    }

    /// Notifies all watches: it is not known what has changed, or messages may have been lost.
    pub fn tell_all(&self) {
        self.tell_where(|_| true);
    }

    /// Notifies the watches of some keys: messages about them may have been lost.
    pub fn tell_where(&self, is_told: impl Fn(&Digest) -> bool) {
        let keys = locked(&self.0);
        let told = keys.iter().filter(|(key, _)| is_told(key));
        let told: Vec<_> = told.map(|(_, watched)| Arc::clone(&watched.changes)).collect();
        drop(keys);
        told.iter().for_each(|changes| changes.tell(None));
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        locked(&self.0).len()
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

crate::debug_fields! { Watchers => |it| watched = it.len() }
