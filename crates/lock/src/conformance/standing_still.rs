//! A holder notices that its process stood still for too long.

use std::sync::Arc;

use super::subject::LockSubject;
use crate::{LockErrorKind, WhenLost};
use bellwether_test::suite::{Checked, Deviation, ensure};

pub(super) async fn a_holder_that_stood_still_for_its_term_knows_it_when_it_looks(
    on: Arc<LockSubject>,
) -> Checked {
    let locks = on.locks_that_lapse()?;
    let held = locks.lock(&on.key()).await.map_err(|error| Deviation::new(error.to_string()))?;
    ensure!(!held.is_lost(), "it is lost at once");
    on.stand_still();
    ensure!(held.is_lost(), "it counts as held after {:?} and more", on.term);
    let told = tokio::time::timeout(on.term, held.lost()).await;
    ensure!(told.is_ok(), "it is not told within {:?}", on.term);
    ensure!(held.is_lost(), "a lost lock is held again");
    Ok(())
}

pub(super) async fn work_that_stood_still_for_the_term_of_its_lock_fails(
    on: Arc<LockSubject>,
) -> Checked {
    for when_lost in [WhenLost::Cancel, WhenLost::Fail] {
        let locks = on.locks_that_lapse()?.when_lost(when_lost);
        let ran = locks.run(&on.key(), async { on.stand_still() }).await;
        let kind = ran.as_ref().err().map(|error| error.kind());
        ensure!(kind == Some(LockErrorKind::Lost), "{when_lost:?}: it was {ran:?}");
    }
    Ok(())
}
