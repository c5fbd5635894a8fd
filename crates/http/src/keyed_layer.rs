//! The options of a layer for which the program makes the keys.

use std::time::Duration;

use bellwether::Handle;
use bellwether::adapter::CacheClient;
use bellwether::store::Store;

use super::caching_rules::KeyedRules;
use super::expiry::entries;
use super::layer::HttpCacheLayer;
use super::mode::ProgramRules;
use super::request_key::RequestKey;
use super::rules::{Credentials, StaleWindows};

impl HttpCacheLayer<KeyedRules> {
    /// A layer over a store, for handlers that say nothing about caching. The program makes the key.
    ///
    /// A response of status 2xx is stored for the [`ttl`](Self::ttl), and 404 and 410 for the
    /// [`not_found_ttl`](Self::not_found_ttl). 5xx counts as a failure. Any other response is shared
    /// with the waiters and not stored.
    ///
    /// Lifetimes in a response (`max-age`, `Expires`, `Age`) are ignored, and so is `Cache-Control`
    /// in a request. Prohibitions in a response are respected: `no-store`, `private`, `no-cache`,
    /// `Set-Cookie`, and a `Vary` that names cookies or credentials.
    ///
    /// Requests with credentials bypass the cache, unless the key has them or
    /// [ignores them](RequestKey::ignoring_credentials). An unsafe request removes
    /// [the response under its own key](RequestKey#changes).
    pub fn keyed<S: Store>(store: S, key: RequestKey) -> Self {
        let zero = Duration::ZERO;
        let rules = ProgramRules {
            key,
            credentials: Credentials::default(),
            ttl: zero,
            not_found_ttl: zero,
            stale: StaleWindows::default(),
        };
        Self::by(KeyedRules(rules), store)
    }

    /// Sets how long a response of status 2xx is fresh.
    ///
    /// Default: zero. Then nothing is stored, and concurrent requests share a response.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.0.ttl = ttl;
        self
    }

    /// Sets how long a 404 or 410 is fresh (negative caching).
    ///
    /// Default: zero, so none is stored. A resource is often requested shortly before it is created,
    /// and a stored 404 would hide it.
    #[must_use]
    pub fn not_found_ttl(mut self, ttl: Duration) -> Self {
        self.rules.0.not_found_ttl = ttl;
        self
    }

    /// A handle to the stored responses, by the keys that [`RequestKey`] makes. For a surrogate key
    /// use [`surrogate_tag`](super::surrogate_tag), and for a group [`group_tags`](super::group_tags).
    ///
    /// If the responses of a key vary, its operations are for all variants. [`Handle::expire`] makes
    /// each of them stale from that moment, by the clock of this process, or removes them in the cases
    /// that [`HttpHandle::expire`](super::HttpHandle::expire) names. Unlike the value of another layer, a
    /// variant whose load is under way is stored, as one from before the expiry. And if the last loads of a
    /// variant have failed, its cooldown goes on.
    pub fn handle(&self) -> Handle {
        entries(&CacheClient::new(&self.layer), &self.expiries)
    }
}
