//! `ReadThroughLayer`: what a layer is told, and the services it makes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::Layer;

use super::core::{Core, Loads};
use super::handle::Handle;
use super::service::ReadThrough;
use crate::capture::Json;
use crate::error::{ConfigError, duration_within};
use crate::key::Key;
use crate::policy::{Policy, Wait, WhenAbandoned};
use crate::store::Store;

/// Puts a cache in front of a loader. See the [module page](super) for examples.
///
/// A plain value: a knob changes this one, not the services that were made of it. Services made by
/// one layer, and their clones, share its loads: one per key in this process.
pub struct ReadThroughLayer<K, C = Json> {
    key_of: K,
    store: Arc<dyn Store>,
    policy: Policy,
    capture: Arc<C>,
    loads: Loads,
}

impl<K> ReadThroughLayer<K> {
    /// A layer over a store, by a function that makes a key of a request.
    ///
    /// The function returns a [`Key`], or an `Option<Key>`: without a key, a request goes straight
    /// to the loader. Everything on which the answer depends belongs into the key.
    ///
    /// Until [`ttl`](Self::ttl) is set nothing is kept: those who ask at the same time share a
    /// load, and that is all.
    pub fn new<S, Req, R>(store: S, key_of: K) -> Self
    where
        S: Store,
        K: Fn(&Req) -> R,
        R: Into<Option<Key>>,
    {
        Self {
            key_of,
            store: Arc::new(store),
            policy: Policy::default(),
            capture: Arc::new(Json),
            loads: Loads::none(),
        }
    }
}

impl<K, C> ReadThroughLayer<K, C> {
    /// Sets how long an answer is kept. Longer than 366 days counts as that: nothing is kept for
    /// ever.
    ///
    /// Default: zero, which keeps nothing. How old an answer may be is a question about your data,
    /// so there is no number that could be right.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.policy.ttl = ttl.min(Policy::MAX_TTL);
        self
    }

    /// Sets what a request does while somebody else loads its key.
    ///
    /// Default: [`Wait::at_most`] 5 s, then an error.
    #[must_use]
    pub fn wait(mut self, wait: Wait) -> Self {
        self.policy.wait = wait;
        self
    }

    /// Sets how long the lease on a key holds without being renewed. It is renewed every third of
    /// that while the load runs, so it bounds how long a key stays blocked when the process that
    /// loads it dies, not how long a load may take.
    ///
    /// Default: 10 s, longer than a process is stopped for by anything it survives.
    ///
    /// # Errors
    /// If it is not from 100 ms to 1 h.
    pub fn lease(mut self, lease: Duration) -> Result<Self, ConfigError> {
        let [least, most] = Policy::LEASES;
        self.policy.lease = duration_within("lease", lease, least, most)?;
        Ok(self)
    }

    /// Sets the hard limit on one load. A loader that takes longer is dropped, its lease is given
    /// up, and everybody who waited for it has an error.
    ///
    /// Default: 30 s, longer than most clients wait, so that only a loader that hangs meets it.
    ///
    /// # Errors
    /// If it is not from 1 ms to 24 h.
    pub fn load_timeout(mut self, limit: Duration) -> Result<Self, ConfigError> {
        let [least, most] = Policy::LOAD_TIMEOUTS;
        self.policy.load_timeout = duration_within("load timeout", limit, least, most)?;
        Ok(self)
    }

    /// Sets what becomes of a load that nobody waits for any more.
    ///
    /// Default: [`WhenAbandoned::Finish`], since who asks once mostly asks again.
    #[must_use]
    pub fn when_abandoned(mut self, when_abandoned: WhenAbandoned) -> Self {
        self.policy.when_abandoned = when_abandoned;
        self
    }

    /// Sets the largest answer that is kept, encoded, in bytes. A larger one is given to everybody
    /// who waits for it, and not kept.
    ///
    /// Default: 1 MiB. Larger values cost a shared store more than they save.
    ///
    /// # Errors
    /// If it is not from 1 to 512 MiB, the most that Redis can hold in one value.
    pub fn max_entry_bytes(mut self, most: usize) -> Result<Self, ConfigError> {
        if !(1..=LARGEST).contains(&most) {
            let setting = "max entry bytes";
            return Err(ConfigError::Number { setting, given: most, least: 1, most: LARGEST });
        }
        self.policy.max_entry_bytes = most;
        Ok(self)
    }

    /// Sets how answers are kept.
    ///
    /// Default: [`Json`], which keeps whatever can be cloned and serialised.
    #[must_use]
    pub fn capture<D>(self, capture: D) -> ReadThroughLayer<K, D> {
        let Self { key_of, store, policy, .. } = self;
        // Loads of its own: what lands in those of another capture is of another type.
        let (capture, loads) = (Arc::new(capture), Loads::none());
        ReadThroughLayer { key_of, store, policy, capture, loads }
    }

    /// A handle to what is kept: to invalidate and expire it, also from elsewhere in the program.
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.store))
    }
}

impl<S, K: Clone, C> Layer<S> for ReadThroughLayer<K, C> {
    type Service = ReadThrough<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        let core = Core {
            store: Arc::clone(&self.store),
            policy: self.policy.clone(),
            capture: Arc::clone(&self.capture),
            loads: self.loads.clone(),
        };
        ReadThrough::new(inner, self.key_of.clone(), Arc::new(core))
    }
}

impl<K: Clone, C> Clone for ReadThroughLayer<K, C> {
    fn clone(&self) -> Self {
        Self {
            key_of: self.key_of.clone(),
            store: Arc::clone(&self.store),
            policy: self.policy.clone(),
            capture: Arc::clone(&self.capture),
            loads: self.loads.clone(),
        }
    }
}

impl<K, C: fmt::Debug> fmt::Debug for ReadThroughLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadThroughLayer")
            .field("store", &self.store)
            .field("policy", &self.policy)
            .field("capture", &self.capture)
            .finish_non_exhaustive()
    }
}

const LARGEST: usize = 512 * 1024 * 1024;
