//! Other processes that lock.

use std::error::Error;
use std::sync::Arc;

use bellwether_lock::Lock;
use bellwether_testkit::locks::{LockSetup, LockWorker, work};

use crate::bench::{Bench, Kind, LockSettings};

/// A process that locks as a bench does.
pub(crate) async fn start(on: &Bench) -> LockWorker {
    let setup = LockSetup { kind: format!("{:?}", on.kind), address: on.url() };
    LockWorker::start("worker::works", &setup).await
}

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(lock);
}

async fn lock(setup: LockSetup) -> Result<Arc<dyn Lock>, Box<dyn Error + Send + Sync>> {
    let kind = Kind::ALL.into_iter().find(|known| format!("{known:?}") == setup.kind);
    Ok(kind.ok_or("no such kind")?.lock_at(&setup.address, &LockSettings::default()))
}
