//! What one session knows of the nodes of its claims.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use bellwether::adapter::locked;
use bellwether::store::{Claim, Token};
use tokio::time::Instant;

/// The node of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Its name below its parent.
    pub(super) name: String,
    /// The transaction that made it: it grows with every node of a server.
    pub(super) made_by: u64,
}

/// What the session knows of a claim's node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimState {
    /// There is none.
    Absent,
    /// The server was asked to make it, and has not answered.
    Unacknowledged,
    /// It exists, as far as is known.
    Present(Node),
}

#[derive(Debug)]
struct ClaimEntry {
    claim: Claim,
    state: ClaimState,
    /// Whether the claim has been told that it holds the key.
    held: bool,
    /// Whether a watch reports changes of its node.
    watched: bool,
    /// Whether it is being released. It is never granted then.
    leaving: bool,
    /// How many operations use the claim now. As long as one does, the record stays without a node: an
    /// operation that is about to make one must not miss a release.
    pending: u32,
    /// When the claim is released unless it was asked for again or is held.
    until: Instant,
}

/// An operation that uses a claim, until this is dropped.
#[derive(Debug)]
pub(super) struct QueuedRequest<'a> {
    table: &'a ClaimTable,
    token: Token,
    /// What was known of the claim's node.
    pub(super) state: ClaimState,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.table.change(self.token, |record| record.pending -= 1);
    }
}

/// The claims that have a node, or may have one.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    /// Held for a map operation, never across an `.await`.
    claims: Mutex<HashMap<Token, ClaimEntry>>,
}

impl ClaimTable {
    /// Notes that an operation asks for a claim. `None` if the claim is being released.
    pub(super) fn ask(&self, claim: &Claim, until: Instant) -> Option<QueuedRequest<'_>> {
        let token = claim.token();
        let mut claims = locked(&self.claims);
        let record = claims.entry(token).or_insert_with(|| ClaimEntry {
            claim: claim.clone(),
            state: ClaimState::Absent,
            held: false,
            watched: false,
            leaving: false,
            pending: 0,
            until,
        });
        if record.leaving {
            return None;
        }
        record.until = until;
        record.pending += 1;
        Some(QueuedRequest { table: self, token, state: record.state.clone() })
    }

    /// Whether the claim may have a node: it is not being released.
    pub(super) fn may_have_node(&self, token: Token) -> bool {
        self.change(token, |record| !record.leaving).unwrap_or_default()
    }

    /// Notes the state of a claim's node.
    pub(super) fn note(&self, token: Token, state: ClaimState) {
        self.change(token, |record| {
            record.held &= record.state == state;
            record.state = state;
        });
    }

    /// Notes that the claim is about to be granted the key. False if it is being released.
    pub(super) fn hold(&self, token: Token) -> bool {
        self.change(token, |record| {
            record.held |= !record.leaving;
            !record.leaving
        })
        .unwrap_or_default()
    }

    /// The node by which the claim holds the key.
    pub(super) fn held(&self, token: Token) -> Option<Node> {
        self.change(token, |record| match &record.state {
            ClaimState::Present(node) if record.held => Some(node.clone()),
            _ => None,
        })?
    }

    /// Whether a watch reports changes of the claim's node.
    pub(super) fn is_watched(&self, token: Token) -> bool {
        self.change(token, |record| record.watched).unwrap_or_default()
    }

    /// Notes whether a watch reports changes of the claim's node.
    pub(super) fn set_watched(&self, token: Token, is_watched: bool) {
        self.change(token, |record| record.watched = is_watched);
    }

    /// Notes that the claim is being released. It cannot be asked for again.
    pub(super) fn leave(&self, token: Token) {
        self.change(token, |record| record.leaving = true);
    }

    /// The claims to release: those whose release is not done, and those that were not asked for
    /// again in time.
    pub(super) fn to_release(&self, now: Instant) -> Vec<Claim> {
        let mut claims = locked(&self.claims);
        let to_release = claims.values_mut().filter_map(|record| {
            record.leaving |= !record.held && record.until <= now;
            let has_node = record.state != ClaimState::Absent;
            (record.leaving && has_node).then(|| record.claim.clone())
        });
        to_release.collect()
    }

    /// How many claims have a node, or may have one.
    pub(super) fn len(&self) -> usize {
        locked(&self.claims).len()
    }

    /// Changes a record. Removes it if there is neither a node nor an operation.
    fn change<T>(&self, token: Token, change: impl FnOnce(&mut ClaimEntry) -> T) -> Option<T> {
        let mut claims = locked(&self.claims);
        let Entry::Occupied(mut record) = claims.entry(token) else { return None };
        let changed = change(record.get_mut());
        if record.get().pending == 0 && record.get().state == ClaimState::Absent {
            record.remove();
        }
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use bellwether::Key;

    /// A claim that has asked, and got a node.
    fn asked() -> (ClaimTable, Claim, Instant) {
        let table = ClaimTable::default();
        let claim = Claim::new(Key::of("item"));
        let until = Instant::now() + Duration::from_secs(1);
        let pending = table.ask(&claim, until).unwrap();
        assert_eq!(pending.state, ClaimState::Absent);
        table.note(claim.token(), ClaimState::Present(node()));
        drop(pending);
        (table, claim, until)
    }

    fn node() -> Node {
        Node { name: "node".to_owned(), made_by: 7 }
    }

    #[test]
    fn a_claim_that_is_not_asked_for_again_is_released() {
        let (table, _, until) = asked();
        assert!(table.to_release(until - Duration::from_millis(1)).is_empty());
        assert_eq!(table.to_release(until).len(), 1);
    }

    #[test]
    fn a_holder_is_not_released_for_not_asking_again() {
        let (table, claim, until) = asked();
        let token = claim.token();
        table.note(token, ClaimState::Present(node()));
        assert!(table.hold(token));
        assert!(table.to_release(until).is_empty());
        assert_eq!(table.held(token), Some(node()));
    }

    #[test]
    fn a_claim_being_released_can_be_neither_asked_for_nor_granted() {
        let (table, claim, until) = asked();
        let token = claim.token();
        table.leave(token);
        assert!(!table.hold(token) && !table.may_have_node(token));
        assert!(table.ask(&claim, until).is_none());
    }

    #[test]
    fn a_claim_released_during_a_request_is_remembered_until_its_end() {
        let (table, claim, until) = asked();
        let token = claim.token();
        let pending = table.ask(&claim, until).unwrap();
        table.leave(token);
        table.note(token, ClaimState::Absent);
        assert!(!table.may_have_node(token));
        drop(pending);
        assert_eq!(table.len(), 0);
    }

    /// Its request was on its way already.
    #[test]
    fn a_claim_that_gets_a_node_during_its_release_is_released_again() {
        let (table, claim, until) = asked();
        let token = claim.token();
        let pending = table.ask(&claim, until).unwrap();
        table.leave(token);
        table.note(token, ClaimState::Absent);
        assert!(table.to_release(until).is_empty());
        table.note(token, ClaimState::Present(node()));
        drop(pending);
        assert_eq!(table.to_release(until).len(), 1);
    }

    #[test]
    fn a_claim_with_another_node_than_was_granted_holds_nothing() {
        let (table, claim, _) = asked();
        let token = claim.token();
        table.note(token, ClaimState::Present(node()));
        table.hold(token);
        table.note(token, ClaimState::Present(Node { made_by: 8, ..node() }));
        assert_eq!(table.held(token), None);
    }
}
