//! `ReadThroughLayer`: what a layer is told, and the services it makes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::Layer;

use super::core::Core;
use super::handle::Handle;
use super::service::ReadThrough;
use crate::capture::Json;
use crate::error::{ConfigError, duration_within};
use crate::flight::Flights;
use crate::key::Key;
use crate::policy::{Policy, Wait, WhenAbandoned};
use crate::store::Store;

/// Puts a cache in front of a loader. See the [module page](super) for examples.
///
/// A layer is a plain value until it is applied. Services made by one layer, and their clones,
/// share its loads: one per key in this process.
#[derive(Clone)]
pub struct ReadThroughLayer<K, C = Json> {
    key_of: K,
    core: Arc<Core<C>>,
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
        let core = Core {
            store: Arc::new(store),
            policy: Policy::default(),
            capture: Json,
            flights: Flights::new(),
            reliefs: Flights::new(),
        };
        Self {
            key_of,
            core: Arc::new(core),
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
    pub fn ttl(self, ttl: Duration) -> Self
    where
        C: Clone,
    {
        self.set(|policy| policy.ttl = ttl.min(Policy::MAX_TTL))
    }

    /// Sets what a request does while somebody else loads its key.
    ///
    /// Default: [`Wait::at_most`] 5 s, then an error.
    #[must_use]
    pub fn wait(self, wait: Wait) -> Self
    where
        C: Clone,
    {
        self.set(|policy| policy.wait = wait)
    }

    /// Sets how long the lease on a key holds without being renewed. It is renewed every third of
    /// that while the load runs, so it bounds how long a key stays blocked when the process that
    /// loads it dies, not how long a load may take.
    ///
    /// Default: 10 s, longer than a process is stopped for by anything it survives.
    ///
    /// # Errors
    /// If it is not from 100 ms to 1 h.
    pub fn lease(self, lease: Duration) -> Result<Self, ConfigError>
    where
        C: Clone,
    {
        let [least, most] = Policy::LEASES;
        let lease = duration_within("lease", lease, least, most)?;
        Ok(self.set(|policy| policy.lease = lease))
    }

    /// Sets the hard limit on one load. A loader that takes longer is dropped, its lease is given
    /// up, and everybody who waited for it has an error.
    ///
    /// Default: 30 s, longer than most clients wait, so that only a loader that hangs meets it.
    ///
    /// # Errors
    /// If it is not from 1 ms to 24 h.
    pub fn load_timeout(self, limit: Duration) -> Result<Self, ConfigError>
    where
        C: Clone,
    {
        let [least, most] = Policy::LOAD_TIMEOUTS;
        let limit = duration_within("load timeout", limit, least, most)?;
        Ok(self.set(|policy| policy.load_timeout = limit))
    }

    /// Sets what becomes of a load that nobody waits for any more.
    ///
    /// Default: [`WhenAbandoned::Finish`], since who asks once mostly asks again.
    #[must_use]
    pub fn when_abandoned(self, when_abandoned: WhenAbandoned) -> Self
    where
        C: Clone,
    {
        self.set(|policy| policy.when_abandoned = when_abandoned)
    }

    /// Sets the largest answer that is kept, encoded, in bytes. A larger one is given to everybody
    /// who waits for it, and not kept.
    ///
    /// Default: 1 MiB. Larger values cost a shared store more than they save.
    ///
    /// # Errors
    /// If it is not from 1 to 512 MiB, the most that Redis can hold in one value.
    pub fn max_entry_bytes(self, most: usize) -> Result<Self, ConfigError>
    where
        C: Clone,
    {
        if !(1..=LARGEST).contains(&most) {
            let setting = "max entry bytes";
            return Err(ConfigError::Number {
                setting,
                given: most,
                least: 1,
                most: LARGEST,
            });
        }
        Ok(self.set(|policy| policy.max_entry_bytes = most))
    }

    /// Sets how answers are kept.
    ///
    /// Default: [`Json`], which keeps whatever can be cloned and serialised.
    #[must_use]
    pub fn capture<D>(self, capture: D) -> ReadThroughLayer<K, D> {
        let core = Core {
            store: Arc::clone(&self.core.store),
            policy: self.core.policy.clone(),
            capture,
            flights: Flights::new(),
            reliefs: Flights::new(),
        };
        ReadThroughLayer {
            key_of: self.key_of,
            core: Arc::new(core),
        }
    }

    /// A handle to what is kept: to invalidate and expire it, also from elsewhere in the program.
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.core.store))
    }

    /// Changes the policy. A layer from which services were made already is left as it is: what is
    /// returned is another one, with loads of its own.
    fn set(self, change: impl FnOnce(&mut Policy)) -> Self
    where
        C: Clone,
    {
        let capture = self.core.capture.clone();
        let mut policy = self.core.policy.clone();
        change(&mut policy);
        let store = Arc::clone(&self.core.store);
        let (flights, reliefs) = (Flights::new(), Flights::new());
        let core = Core {
            store,
            policy,
            capture,
            flights,
            reliefs,
        };
        Self {
            key_of: self.key_of,
            core: Arc::new(core),
        }
    }
}

impl<S, K: Clone, C> Layer<S> for ReadThroughLayer<K, C> {
    type Service = ReadThrough<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ReadThrough::new(inner, self.key_of.clone(), Arc::clone(&self.core))
    }
}

impl<K, C: fmt::Debug> fmt::Debug for ReadThroughLayer<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadThroughLayer")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

const LARGEST: usize = 512 * 1024 * 1024;
