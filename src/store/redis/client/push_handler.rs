//! What the server tells without being asked: that keys have changed, and that a connection ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::aio::SendError;
use redis::{PushInfo, PushKind, Value};
use tokio::time::Instant;

use super::connection::ConnectionState;
use super::names::Names;
use crate::key::Digest;
use crate::store::Watchers;

/// Where the changes go that the server reports over a tracked connection.
#[derive(Clone, Debug)]
pub(super) struct PushHandler {
    pub(super) names: Names,
    pub(super) watchers: Watchers,
    pub(super) observer: Option<Arc<dyn TrackingObserver>>,
    /// Whether the server reports changes, as far as is known.
    pub(super) is_tracked: Arc<AtomicBool>,
    /// How many messages came.
    pub(super) pushes: Arc<AtomicU64>,
}

/// Knows between which moments every change of a key is reported: what a near tier goes by.
///
/// Its methods are called by the tasks of connections, so none of them waits.
pub(in super::super) trait TrackingObserver:
    std::fmt::Debug + Send + Sync
{
    /// A name of a key has changed.
    fn changed(&self, name: &[u8], digest: &Digest);

    /// Names have changed, and which is not known.
    fn all_changed(&self);

    /// From now on changes are reported over a connection, unless it has broken meanwhile. The
    /// request for that was sent at `sent_at`.
    fn connected(&self, connection: u64, sent_at: Instant, is_broken: &dyn Fn() -> bool);

    /// A connection has answered a request that was sent at this moment.
    fn confirmed(&self, connection: u64, sent_at: Instant);

    /// Nothing is reported over a connection any more.
    fn disconnected(&self, connection: u64);
}

impl PushHandler {
    fn handle(&self, push: &PushInfo) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Invalidate, [Value::Array(names)]) => {
                names.iter().for_each(|name| self.changed(name));
            }
            // Without names: the server dropped all its data, or all that it tracked.
            (PushKind::Invalidate, _) => {
                self.observer.as_ref().inspect(|observer| observer.all_changed());
                self.watchers.tell_all();
            }
            // Messages may have been lost, and none will come any more.
            (PushKind::Disconnection, _) => self.watchers.tell_all(),
            _ => {}
        }
    }

    fn changed(&self, name: &Value) {
        if let Value::BulkString(name) = name
            && let Some(digest) = self.names.digest_of(name)
        {
            self.observer.as_ref().inspect(|observer| observer.changed(name, &digest));
            self.watchers.tell(&digest);
        }
    }
}

/// Receives the pushes of one connection. It is dropped with the connection, however that ends: its
/// runtime may end before it.
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
    }
}
