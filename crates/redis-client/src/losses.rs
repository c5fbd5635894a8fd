//! Losses: after a connection to a node broke, the node may have lost its last writes.
//!
//! Behind an address can be another server than before: a replica that was promoted, or the same
//! server after a restart. A client cannot tell that from a network that failed for a moment. So
//! every broken connection counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::events::{Events, ServerEvent};
use bellwether::Digest;

/// The broken connections of a node, until the observer has been told.
#[derive(Debug)]
pub(super) struct NodeLosses {
    events: Arc<Events>,
    /// The place of the node.
    node: u16,
    /// Held while the observer is told, so that no request overtakes that. Never held across an
    /// `.await`.
    broken: Mutex<BrokenConnections>,
}

#[derive(Debug)]
struct BrokenConnections {
    /// For each connection of the node, when the first of any of them broke since that one was
    /// opened.
    untold: Vec<Option<Instant>>,
    /// Since when none was opened, after one broke.
    lost_at: Option<Instant>,
}

impl NodeLosses {
    /// Those of a node with this many connections.
    pub(super) fn new(events: Arc<Events>, node: u16, connections: usize) -> Self {
        let broken = BrokenConnections { untold: vec![None; connections], lost_at: None };
        Self { events, node, broken: Mutex::new(broken) }
    }

    /// A connection that was in use broke.
    pub(super) fn broke(&self) {
        let now = Instant::now();
        let mut broken = self.broken();
        broken.untold.iter_mut().for_each(|untold| _ = untold.get_or_insert(now));
        broken.lost_at.get_or_insert(now);
    }

    /// A connection was opened, in place of a former one or not. Call it before it is used.
    pub(super) fn opened(&self, connection: usize, replaces: bool) {
        let mut broken = self.broken();
        broken.lost_at = None;
        let untold = broken.untold.get_mut(connection).and_then(Option::take);
        let since = untold.or_else(|| replaces.then(Instant::now));
        if let Some(since) = since {
            let is_affected = &|digest: &Digest| self.events.owns(self.node, digest);
            self.events.tell(ServerEvent::MayHaveLost { since, is_affected });
        }
    }

    /// Since when the node is out of reach.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.broken().lost_at
    }

    fn broken(&self) -> MutexGuard<'_, BrokenConnections> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::events::ServerObserver;
    use crate::names::Names;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<Instant>>);

    impl ServerObserver for Told {
        fn note(&self, event: ServerEvent<'_>) {
            if let ServerEvent::MayHaveLost { since, .. } = event {
                self.0.lock().expect("a list").push(since);
            }
        }
    }

    fn node() -> (NodeLosses, Arc<Told>) {
        let told = Arc::<Told>::default();
        let events = Events::new(Names::new("shop"), Some(Arc::clone(&told) as _));
        (NodeLosses::new(Arc::new(events), 0, 2), told)
    }

    fn told(told: &Told) -> Vec<Instant> {
        told.0.lock().expect("a list").clone()
    }

    #[tokio::test(start_paused = true)]
    async fn each_connection_that_is_opened_after_a_loss_tells_when_the_first_one_broke() {
        let (node, told_of) = node();
        node.opened(0, false);
        let broke_at = Instant::now();
        node.broke();
        advance(Duration::from_secs(30)).await;
        node.broke();
        assert_eq!(node.lost_at(), Some(broke_at));
        node.opened(0, true);
        // The other one is opened for the first time, and leads to the same server.
        node.opened(1, false);
        assert_eq!(told(&told_of), [broke_at; 2]);
        assert_eq!(node.lost_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_connections_tell_nothing() {
        let (node, told_of) = node();
        node.opened(0, false);
        node.opened(1, false);
        assert_eq!(told(&told_of), []);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_replaced_without_a_break_tells_of_this_moment() {
        let (node, told_of) = node();
        node.opened(0, false);
        node.opened(0, true);
        assert_eq!(told(&told_of), [Instant::now()]);
    }
}
