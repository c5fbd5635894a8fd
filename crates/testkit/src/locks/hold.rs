//! A key that a worker took for good.

use std::sync::Arc;
use std::time::Duration;

use bellwether::store::{Claim, Renew};
use bellwether_lock::{Attempt, Lock, LockError, Request, Term};
use tokio::sync::watch;
use tokio::time::sleep;

use super::key;

/// A key that is held, or was.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) fence: Option<u64>,
    is_lost: watch::Receiver<bool>,
}

impl Hold {
    /// Takes a key, and keeps it from then on; `None` if it is taken.
    pub(super) async fn take(
        lock: &Arc<dyn Lock>,
        number: u64,
        lease: Duration,
        patience: Duration,
    ) -> Result<Option<Self>, LockError> {
        let claim = Claim::new(key(number));
        let request = Request::new(claim.clone(), lease).patient_for(patience);
        let grant = match lock.acquire(request).await? {
            Attempt::Granted(grant) => grant,
            Attempt::Busy(_) => return Ok(None),
            other => panic!("{other:?}"),
        };
        let (lost, is_lost) = watch::channel(false);
        let lock = Arc::clone(lock);
        let fence = grant.fence;
        tokio::spawn(async move {
            keep(&*lock, &claim, lease, grant.term).await;
            lost.send_replace(true);
        });
        Ok(Some(Self { fence, is_lost }))
    }

    /// Waits until it is lost.
    pub(super) async fn lost(mut self) -> Option<u64> {
        self.is_lost.wait_for(|lost| *lost).await.expect("its keeper does not panic");
        self.fence
    }
}

/// Returns when the key is lost.
async fn keep(lock: &dyn Lock, claim: &Claim, lease: Duration, term: Term) {
    match term {
        Term::Session(mut session) => session.ended().await,
        _ => {
            while let Renew::Held = lock.renew(claim, lease).await.expect("an answer") {
                sleep(lease / 3).await;
            }
        }
    }
}
