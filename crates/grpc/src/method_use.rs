//! Whether a method that is named is ever answered by the cache, to warn if it is not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What became of the calls of one method.
#[derive(Debug, Default)]
pub(super) struct MethodUse {
    bypasses: AtomicU64,
    /// A call was looked up in the cache.
    is_looked_up: AtomicBool,
}

impl MethodUse {
    /// A call is looked up in the cache.
    pub(super) fn looked_up(&self) {
        if !self.is_looked_up.load(Ordering::Relaxed) {
            self.is_looked_up.store(true, Ordering::Relaxed);
        }
    }

    /// A call of this method bypasses the cache.
    pub(super) fn bypassed(&self, method: &str) {
        if self.is_looked_up.load(Ordering::Relaxed) {
            return;
        }
        if self.bypasses.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH_BYPASSES {
            tracing::warn!(target: "bellwether::grpc", method, "{ALL_BYPASS}");
        }
    }

    /// Whether a call has come.
    fn is_called(&self) -> bool {
        self.is_looked_up.load(Ordering::Relaxed) || self.bypasses.load(Ordering::Relaxed) > 0
    }
}

/// The calls of methods that are not named.
#[derive(Debug, Default)]
pub(super) struct OtherCalls(AtomicU64);

impl OtherCalls {
    /// A call has come of a method that is not named. Enough of them, and methods that are named and
    /// were never called have a wrong name.
    pub(super) fn called<'a>(
        &self,
        path: &str,
        named: impl Iterator<Item = (&'a String, &'a MethodUse)>,
    ) {
        if self.0.load(Ordering::Relaxed) >= ENOUGH_OTHERS {
            return;
        }
        if self.0.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH_OTHERS {
            for (method, _) in named.filter(|(_, calls)| !calls.is_called()) {
                tracing::warn!(target: "bellwether::grpc", method, called = path, "{NEVER_CALLED}");
            }
        }
    }
}

/// Some clients may send other metadata than the rest.
const ENOUGH_BYPASSES: u64 = 100;

/// A method may be called rarely.
const ENOUGH_OTHERS: u64 = 1_000;

const ALL_BYPASS: &str = "all calls of this method bypass the cache: calls with credentials do, unless \
                          its `CachedMethod` has `metadata` or `ignoring_credentials` for them, and so do \
                          calls without metadata that its `CachedMethod` names (what sets it belongs above the \
                          layer), compressed messages, and formats other than \
                          protobuf";

const NEVER_CALLED: &str = "no call of this method has come among 1,000 others: does a service have it? A \
                            path is as in `/package.Service/Method`";
