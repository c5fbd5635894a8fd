//! Places: what one session knows of its own nodes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bellwether::Digest;
use bellwether::store::Token;
use tokio::time::Instant;

/// A node of ours.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Within its parent.
    pub(super) name: String,
    /// The transaction that made it: it grows with every node of a server.
    pub(super) made_by: u64,
}

/// What is known of a claim's node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Known {
    /// There is none.
    Absent,
    /// It was asked for, and the answer has not been heard.
    Perhaps,
    /// It is there, as far as is known.
    There(Node),
}

#[derive(Debug)]
struct ClaimRecord {
    digest: Digest,
    known: Known,
    /// Whether the claim has been told that it holds the key.
    held: bool,
    /// Whether a watch tells of its node.
    watched: bool,
    /// Whether it is being given up. It is never granted then.
    leaving: bool,
    /// Whether it has no node any more, as far as is known.
    gone: bool,
    /// How many operations ask by it at this moment. It is remembered as long, so that an operation
    /// that is about to make a node does not miss a release.
    asking: u32,
    /// When it is given up if it has not been asked for again, unless it is held.
    until: Instant,
}

/// An operation that asks by a claim, until it is dropped.
#[derive(Debug)]
pub(super) struct PendingRequest<'a> {
    places: &'a ClaimTable,
    token: Token,
    /// What was known of the claim's node.
    pub(super) known: Known,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let mut claims = self.places.claims();
        if let Entry::Occupied(mut place) = claims.entry(self.token) {
            place.get_mut().asking -= 1;
            if place.get().asking == 0 && place.get().gone {
                place.remove();
            }
        }
    }
}

/// The claims that have a node, or may have one.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    /// Held for a map operation, never across an `.await`.
    claims: Mutex<HashMap<Token, ClaimRecord>>,
}

impl ClaimTable {
    /// A claim asks. `None` if it is being given up.
    pub(super) fn ask(
        &self,
        token: Token,
        digest: Digest,
        until: Instant,
    ) -> Option<PendingRequest<'_>> {
        let mut claims = self.claims();
        let place = claims.entry(token).or_insert(ClaimRecord {
            digest,
            known: Known::Absent,
            held: false,
            watched: false,
            leaving: false,
            gone: false,
            asking: 0,
            until,
        });
        if place.leaving {
            return None;
        }
        (place.until, place.gone) = (until, false);
        place.asking += 1;
        Some(PendingRequest { places: self, token, known: place.known.clone() })
    }

    /// Whether the claim may have a node: it is not being given up.
    pub(super) fn may_stand(&self, token: Token) -> bool {
        self.claims().get(&token).is_some_and(|place| !place.leaving)
    }

    /// More is known of a claim's node.
    pub(super) fn note(&self, token: Token, known: Known) {
        if let Some(place) = self.claims().get_mut(&token) {
            place.held &= place.known == known;
            place.gone &= known == Known::Absent;
            place.known = known;
        }
    }

    /// The claim is about to be told that it holds the key. False if it is being given up.
    pub(super) fn hold(&self, token: Token) -> bool {
        let mut claims = self.claims();
        let place = claims.get_mut(&token).filter(|place| !place.leaving);
        place.map(|place| place.held = true).is_some()
    }

    /// The node that the claim holds the key by.
    pub(super) fn held(&self, token: Token) -> Option<Node> {
        let claims = self.claims();
        match claims.get(&token) {
            Some(ClaimRecord { held: true, known: Known::There(node), .. }) => Some(node.clone()),
            _ => None,
        }
    }

    /// Whether a watch tells of the claim's node.
    pub(super) fn is_watched(&self, token: Token) -> bool {
        self.claims().get(&token).is_some_and(|place| place.watched)
    }

    /// A watch tells of the claim's node from now on, or does not any more.
    pub(super) fn watched(&self, token: Token, is_watched: bool) {
        if let Some(place) = self.claims().get_mut(&token) {
            place.watched = is_watched;
        }
    }

    /// The claim is given up, and is to be asked for no more.
    pub(super) fn leave(&self, token: Token) {
        if let Some(place) = self.claims().get_mut(&token) {
            place.leaving = true;
        }
    }

    /// The claim has no node any more.
    pub(super) fn forget(&self, token: Token) {
        if let Entry::Occupied(mut place) = self.claims().entry(token) {
            place.get_mut().gone = true;
            if place.get().asking == 0 {
                place.remove();
            }
        }
    }

    /// Which claims are to be given up, those among them that were not asked for in time.
    pub(super) fn owed(&self, now: Instant) -> Vec<(Token, Digest)> {
        let mut claims = self.claims();
        let owed = claims.iter_mut().filter_map(|(token, place)| {
            place.leaving |= !place.held && place.until <= now;
            (place.leaving && !place.gone).then_some((*token, place.digest))
        });
        owed.collect()
    }

    pub(super) fn len(&self) -> usize {
        self.claims().len()
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Token, ClaimRecord>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use bellwether::Key;
    use bellwether::store::Claim;

    fn asked() -> (ClaimTable, Token, Instant) {
        let (places, claim) = (ClaimTable::default(), Claim::new(Key::of("item")));
        let until = Instant::now() + Duration::from_secs(1);
        let asking = places.ask(claim.token(), claim.key().digest(), until);
        assert_eq!(asking.unwrap().known, Known::Absent);
        (places, claim.token(), until)
    }

    fn node() -> Node {
        Node { name: "node".to_owned(), made_by: 7 }
    }

    #[test]
    fn who_is_not_heard_of_in_time_is_given_up() {
        let (places, _, until) = asked();
        assert_eq!(places.owed(until - Duration::from_millis(1)), []);
        assert_eq!(places.owed(until).len(), 1);
    }

    #[test]
    fn who_holds_is_not_given_up_for_not_asking() {
        let (places, token, until) = asked();
        places.note(token, Known::There(node()));
        assert!(places.hold(token));
        assert_eq!(places.owed(until), []);
        assert_eq!(places.held(token), Some(node()));
    }

    #[test]
    fn who_is_given_up_is_neither_heard_nor_granted() {
        let (places, token, until) = asked();
        places.leave(token);
        assert!(!places.hold(token) && !places.may_stand(token));
        assert!(places.ask(token, Key::of("item").digest(), until).is_none());
    }

    #[test]
    fn who_is_given_up_while_it_asks_is_remembered_until_it_has_asked() {
        let (places, token, until) = asked();
        let asking = places.ask(token, Key::of("item").digest(), until).unwrap();
        places.leave(token);
        places.forget(token);
        assert!(!places.may_stand(token));
        drop(asking);
        assert_eq!(places.len(), 0);
    }

    /// Its question was on its way already.
    #[test]
    fn who_has_got_a_node_while_it_was_given_up_is_given_up_again() {
        let (places, token, until) = asked();
        let asking = places.ask(token, Key::of("item").digest(), until).unwrap();
        places.leave(token);
        places.forget(token);
        assert_eq!(places.owed(until), []);
        places.note(token, Known::There(node()));
        drop(asking);
        assert_eq!(places.owed(until).len(), 1);
    }

    #[test]
    fn who_has_another_node_than_was_granted_holds_nothing() {
        let (places, token, _) = asked();
        places.note(token, Known::There(node()));
        places.hold(token);
        places.note(token, Known::There(Node { made_by: 8, ..node() }));
        assert_eq!(places.held(token), None);
    }
}
