//! The push handler: receives the messages of the server about changes and the end of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::aio::SendError;
use redis::{PushInfo, PushKind, Value};

use super::connection::ConnectionState;
use super::names::Names;
use super::slot::{InSlot, SlotOwners};
use super::tracking_observer::TrackingObserver;
use bellwether::Digest;
use bellwether::store::Watchers;

/// Passes on the changes that the server reports over a tracked connection.
#[derive(Clone, Debug)]
pub(super) struct PushHandler {
    pub(super) names: Names,
    pub(super) watchers: Watchers,
    /// The place of the node.
    pub(super) node: u16,
    /// The owners of the slots of a cluster.
    pub(super) owners: Option<Arc<SlotOwners>>,
    pub(super) observer: Option<Arc<dyn TrackingObserver>>,
    /// Whether the server reports changes, as far as is known.
    pub(super) is_tracked: Arc<AtomicBool>,
    /// The number of messages so far.
    pub(super) pushes: Arc<AtomicU64>,
}

impl PushHandler {
    fn handle(&self, push: &PushInfo) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Invalidate, [Value::Array(names)]) => {
                names.iter().for_each(|name| self.changed(name));
            }
            // Without names: the server dropped all data, or stopped tracking all names.
            (PushKind::Invalidate, _) => {
                self.observer.as_ref().inspect(|observer| observer.all_changed(self.node));
                self.tell_all();
            }
            // Messages may have been lost, and no more will come.
            (PushKind::Disconnection, _) => self.tell_all(),
            _ => {}
        }
    }

    /// Notifies the watches of all keys on the node.
    fn tell_all(&self) {
        match &self.owners {
            None => self.watchers.tell_all(),
            Some(owners) => {
                let is_ours = |key: &Digest| owners.node(key.slot()) == Some(self.node);
                self.watchers.tell_where(is_ours);
            }
        }
    }

    fn changed(&self, name: &Value) {
        let Value::BulkString(name) = name else { return };
        if let Some(digest) = self.names.digest_of(name) {
            self.observer.as_ref().inspect(|observer| observer.changed(name, &digest));
            self.watchers.tell(&digest);
        } else if let Some(tag) = self.names.tag_of(name) {
            self.observer.as_ref().inspect(|observer| observer.tag_changed(&tag));
        }
    }
}

/// Receives the push messages of one connection. It is dropped with the connection, also if the
/// runtime of the connection ends.
pub(super) struct PushReceiver {
    pub(super) state: Arc<ConnectionState>,
    pub(super) handler: Option<PushHandler>,
}

impl PushReceiver {
    pub(super) fn receive(&self, push: &PushInfo) -> Result<(), SendError> {
        if push.kind == PushKind::Disconnection {
            self.state.end();
        }
        if let Some(handler) = &self.handler {
            handler.handle(push);
        }
        Ok(())
    }
}

impl Drop for PushReceiver {
    fn drop(&mut self) {
        self.state.end();
        // Messages may have been lost, and no more will come.
        self.handler.as_ref().inspect(|handler| handler.watchers.tell_all());
    }
}
