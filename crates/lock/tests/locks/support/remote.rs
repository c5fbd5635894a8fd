//! A lock as several processes have it.

use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Claim, Renew, Watch};
use bellwether_lock::{
    Attempt, Fenced, Holder, Lock, LockFuture, Reentrant, Released, Request, TakeOver,
};

/// A handle whose clones share no local queues: each `Locks` over one is a process of its own.
#[derive(Clone, Debug)]
pub(crate) struct Remote<L>(pub(crate) L);

impl<L: Lock> Lock for Remote<L> {
    fn watch(&self, key: &Key) -> Watch {
        self.0.watch(key)
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        self.0.acquire(request)
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        self.0.renew(claim, lease)
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        self.0.verify(claim)
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        self.0.release(claim)
    }
}

impl<L: Fenced> Fenced for Remote<L> {}

impl<L: Reentrant> Reentrant for Remote<L> {}

impl<L: TakeOver> TakeOver for Remote<L> {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        self.0.take_over(request, from)
    }
}
