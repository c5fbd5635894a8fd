//! A lock that its owner may take again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Claim, Renew, Token, Watch, Watchers};
use bellwether_lock::{
    Attempt, Busy, Fenced, Grant, Lock, LockFuture, Owner, Reentrant, Released, Request,
};

/// Without leases: a holder that does not release has the key for ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReentrantLocal {
    holds: Arc<Mutex<Holds>>,
    watchers: Watchers,
}

#[derive(Debug, Default)]
struct Holds {
    of: HashMap<Key, (Owner, u64, HashSet<Token>)>,
    last_fence: u64,
}

impl ReentrantLocal {
    pub(crate) fn holds(&self, key: &Key) -> usize {
        self.holds.lock().expect("holds").of.get(key).map_or(0, |(_, _, claims)| claims.len())
    }

    fn hold(&self, request: &Request) -> Attempt {
        let mut holds = self.holds.lock().expect("holds");
        holds.last_fence += 1;
        let next = holds.last_fence;
        let (owner, fence, claims) = holds
            .of
            .entry(request.claim.key().clone())
            .or_insert_with(|| (request.owner, next, HashSet::new()));
        if *owner != request.owner {
            return Attempt::Busy(Busy::new());
        }
        claims.insert(request.claim.token());
        Attempt::Granted(Grant::by_lease().fenced(*fence))
    }
}

impl Lock for ReentrantLocal {
    fn watch(&self, key: &Key) -> Watch {
        self.watchers.watch(key.digest())
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let this = self.clone();
        Box::pin(async move { Ok(this.hold(&request)) })
    }

    fn renew(&self, claim: &Claim, _: Duration) -> LockFuture<Renew> {
        let holds = self.holds.lock().expect("holds");
        let held = holds.of.get(claim.key());
        let is_held = held.is_some_and(|(_, _, claims)| claims.contains(&claim.token()));
        Box::pin(async move { Ok(if is_held { Renew::Held } else { Renew::Lost }) })
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        let this = self.clone();
        Box::pin(async move {
            let mut holds = this.holds.lock().expect("holds");
            let Some((_, _, claims)) = holds.of.get_mut(claim.key()) else {
                return Ok(Released::NotHeld);
            };
            let was_held = claims.remove(&claim.token());
            if claims.is_empty() {
                holds.of.remove(claim.key());
            }
            drop(holds);
            if !was_held {
                return Ok(Released::NotHeld);
            }
            this.watchers.tell(&claim.key().digest(), None);
            Ok(Released::Freed)
        })
    }
}

impl Fenced for ReentrantLocal {}

impl Reentrant for ReentrantLocal {}
