//! In the place of `tokio::runtime`: requests are dropped outside of one, so nothing watches for them.

use std::future::Future;

pub(crate) struct Handle;

impl Handle {
    pub(crate) fn try_current() -> Result<Self, ()> {
        Err(())
    }

    pub(crate) fn spawn(&self, _task: impl Future<Output = ()>) {}
}
