//! `ReadThroughLayer`: the options of a layer, and the services that it makes.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, Service};

use super::core::{Core, UnderWay};
use super::error_rules::{ErrorClass, ErrorRule, ErrorRules};
use super::handle::Handle;
use super::key_request::IntoKeyRequest;
use super::service::ReadThrough;
use crate::codec::{Cacheability, Codec, InProcess, Json, RuledCodec};
use crate::config_error::{ConfigError, FirstError, within};
use crate::error::BoxError;
use crate::loads::Loads;
use crate::policy::{Doubling, Freshness, Policy, Wait, WhenAbandoned, WhenStoreFails};
use crate::stats::{CacheStats, Statistics};
use crate::store::{InProcessStore, Store};
use crate::tag::{Tag, TagRules};
use crate::trace::TraceKeys;

/// Puts a cache in front of a loader. See [`service`](crate::service) for examples.
///
/// Its services and their clones share its loads: one per key in this process.
pub struct ReadThroughLayer<K, C = Json> {
    pub(super) key_of: K,
    pub(crate) core: Arc<Core<C>>,
}

impl<K> ReadThroughLayer<K> {
    /// Begins a layer over a store, by a function that makes a key of a request.
    ///
    /// The function returns a [`Key`](crate::Key), an `Option<Key>` (without a key, a request
    /// bypasses the cache), or a [`KeyRequest`](crate::service::KeyRequest) with options for this request.
    /// Everything on which the answer depends belongs in the key.
    ///
    /// Until [`ttl`](ReadThroughLayerBuilder::ttl) is set, nothing is stored: callers share a load.
    pub fn builder<S: Store, Req, R: IntoKeyRequest>(
        store: S,
        key_of: K,
    ) -> ReadThroughLayerBuilder<K>
    where
        K: Fn(&Req) -> R,
    {
        ReadThroughLayerBuilder::new(store, key_of)
    }
}

impl<K> ReadThroughLayer<K, InProcess> {
    /// Begins a layer whose answers are never encoded, over a store of this process alone. They are any
    /// `Clone` values, such as an `Arc`. As [`builder`](Self::builder) otherwise; see
    /// [`Cache::in_process`](crate::Cache::in_process).
    pub fn in_process<S, Req, R>(store: S, key_of: K) -> ReadThroughLayerBuilder<K, InProcess>
    where
        S: InProcessStore,
        K: Fn(&Req) -> R,
        R: IntoKeyRequest,
    {
        ReadThroughLayer::builder(store, key_of).codec(InProcess)
    }
}

impl ReadThroughLayer<()> {
    /// Begins a layer for an adapter that makes its keys itself: see [`adapter`](crate::adapter).
    pub fn without_keys<S: Store>(store: S) -> ReadThroughLayerBuilder<()> {
        ReadThroughLayerBuilder::new(store, ())
    }
}

impl<K, C> ReadThroughLayer<K, C> {
    /// A handle to the stored entries, to invalidate and expire them from anywhere in the program.
    pub fn handle(&self) -> Handle {
        self.core.handle()
    }

    /// What the services of this layer and its clones have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.core.statistics.read()
    }
}

impl<K: Clone, C> ReadThroughLayer<K, C> {
    /// The loader behind this layer, as by [`layer`](Layer::layer). The compiler checks here that
    /// the loader, its answers and the requests are what a cache needs, and says what is missing.
    pub fn service<S, Req: Send + 'static, R: IntoKeyRequest>(
        &self,
        loader: S,
    ) -> ReadThrough<S, K, C>
    where
        S: Service<Req, Error: Into<BoxError> + Send + Sync + 'static, Future: Send>,
        S: Clone + Send + 'static,
        K: Fn(&Req) -> R,
        C: Codec<S::Response>,
    {
        self.layer(loader)
    }
}

impl<S, K: Clone, C> Layer<S> for ReadThroughLayer<K, C> {
    type Service = ReadThrough<S, K, C>;

    fn layer(&self, inner: S) -> Self::Service {
        ReadThrough { inner, key_of: self.key_of.clone(), core: Arc::clone(&self.core) }
    }
}

impl<K: Clone, C> Clone for ReadThroughLayer<K, C> {
    fn clone(&self) -> Self {
        Self { key_of: self.key_of.clone(), core: Arc::clone(&self.core) }
    }
}

crate::debug_fields! { ReadThroughLayer<K, C> where C: Debug => |it|
    name = it.core.statistics.name(), core = it.core
}

/// The options of a [`ReadThroughLayer`]. Made by [`ReadThroughLayer::builder`].
///
/// What is wrong with one of them is said by [`build`](Self::build).
#[must_use]
pub struct ReadThroughLayerBuilder<K, C = Json> {
    key_of: K,
    codec: C,
    options: LayerOptions,
}

/// All options of a layer, which are of the same types whatever its codec is.
struct LayerOptions {
    store: Arc<dyn Store>,
    policy: Policy,
    loads: Option<Loads>,
    errors: ErrorRules,
    tags: TagRules,
    name: Arc<str>,
    trace_keys: TraceKeys,
    wrong: FirstError,
}

impl<K> ReadThroughLayerBuilder<K> {
    fn new<S: Store>(store: S, key_of: K) -> Self {
        let options = LayerOptions {
            store: Arc::new(store),
            policy: Policy::default(),
            loads: None,
            errors: ErrorRules::default(),
            tags: TagRules::default(),
            name: Statistics::UNNAMED.into(),
            trace_keys: TraceKeys::default(),
            wrong: FirstError::default(),
        };
        Self { key_of, codec: Json, options }
    }
}

impl<K, C> ReadThroughLayerBuilder<K, C> {
    /// Sets the time to live: how long an answer is fresh. At most 366 days; more counts as that.
    ///
    /// Default: zero, which stores nothing: the callers of one process share a load, and processes
    /// load one after another. How old an answer may be depends on your data, so no default could be
    /// right.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|p| p.freshness.ttl = ttl.min(Freshness::MAX_TTL))
    }

    /// Stores no answer, on purpose: the callers of one process share a load, and processes load one after
    /// another. Without this or a [`ttl`](Self::ttl), the same happens and a warning says so.
    pub fn coalesce_only(mut self) -> Self {
        self.options.policy.freshness.coalesce_only = true;
        self.ttl(Duration::ZERO)
    }

    /// Sets how long an answer that says "there is none" is stored (negative caching): see
    /// [`Cacheability::NotFound`]. At most 366 days; more counts as that.
    ///
    /// Default: zero, which stores none: the callers of one process share it, and processes load one
    /// after another. Data that is requested before it exists is wanted soon after.
    pub fn not_found_ttl(self, ttl: Duration) -> Self {
        self.with(|p| p.freshness.not_found_ttl = ttl.min(Freshness::MAX_TTL))
    }

    /// Sets how long after its `ttl` an answer is served while one load, in one process, replaces
    /// it in the background (RFC 5861, section 3). At most 366 days; more counts as that.
    ///
    /// Default: zero. A stale window hides the time of loads from callers of hot keys; callers of
    /// rare keys get an older answer for it.
    pub fn stale_while_revalidate(self, stale: Duration) -> Self {
        self.with(|p| p.freshness.stale_while_revalidate = stale.min(Freshness::MAX_TTL))
    }

    /// Sets how long after its `ttl` an answer is served if no load replaces it: if the load fails
    /// or has failed a moment ago, if a wait runs out, or if a bound or a deadline leaves no load
    /// (RFC 5861, section 4). At most 366 days; more counts as that.
    ///
    /// Default: zero: callers get errors.
    pub fn stale_if_error(self, stale: Duration) -> Self {
        self.with(|p| p.freshness.stale_if_error = stale.min(Freshness::MAX_TTL))
    }

    /// Sets how long a waiter waits at most if there is an answer in either stale window: then it
    /// gets that one, and the load goes on. Each waiter counts from when it began to wait.
    ///
    /// Default: never.
    pub fn slow_load(self, after: Duration) -> Self {
        self.with(|p| p.slow_load = Some(after))
    }

    /// Refreshes an answer while it is still fresh (probabilistic early refresh), the likelier the
    /// nearer its end is and the longer it took to load, so that a hot key never expires. Only the
    /// caller that gets the lease loads. `beta` above 1 is earlier, below 1 later (XFetch: Vattani et
    /// al., PVLDB 8, 2015). [`build`](Self::build) fails if `beta` is not from 0.01 to 100.
    ///
    /// Default: off. 1.0 is the value that the paper proves optimal.
    pub fn refresh_early(self, beta: f64) -> Self {
        self.set(|p| &mut p.freshness.early, within("beta", beta, 0.01, 100.0).map(Some))
    }

    /// Sets by which share a `ttl` is shortened at most, at random, so that entries loaded together
    /// do not expire together. [`build`](Self::build) fails if it is not from 0 to 1.
    ///
    /// Default: 0.1, which spreads a minute over six seconds.
    pub fn jitter(self, share: f64) -> Self {
        self.set(|p| &mut p.freshness.jitter, within("jitter", share, 0.0, 1.0))
    }

    /// Sets how long a process remembers that the last answers for a key were private, counted from
    /// the last of them: see [`Cacheability::PrivateKey`]. The first answer that can be shared ends
    /// it at once. The store tells the waiters of other processes for as long that an answer was
    /// not stored. At most 366 days; more counts as that.
    ///
    /// Default: 10 s, after which one burst finds out whether that has changed.
    pub fn private_for(self, duration: Duration) -> Self {
        self.with(|p| p.freshness.marker_ttl = duration.min(Freshness::MAX_TTL))
    }

    /// Sets how many callers may wait for one key in this process. Further callers get a stale
    /// answer, or [`CacheErrorKind::Full`](crate::CacheErrorKind::Full). [`build`](Self::build) fails
    /// if it is zero.
    ///
    /// Default: 10,000, which take about 10 MB.
    pub fn max_waiters(self, most: usize) -> Self {
        self.set(|p| &mut p.max_waiters, within("max waiters", most, 1, usize::MAX))
    }

    /// Sets how many keys this layer may look up and load at once in a process. Misses of further
    /// keys get a stale answer, or [`CacheErrorKind::Full`](crate::CacheErrorKind::Full), unless a
    /// load can be cancelled that [all callers have left](Self::max_abandoned_loads).
    /// [`build`](Self::build) fails if it is zero.
    ///
    /// Default: 10,000. [`max_loads`](Self::max_loads) bounds how many load at once.
    pub fn max_flights(self, most: usize) -> Self {
        self.set(|p| &mut p.max_flights, within("max flights", most, 1, usize::MAX))
    }

    /// Sets how many loads may be under way at once in this process: a number for this layer alone, or
    /// [`Loads`] that several share. One call of a batch loader counts as one. It holds with and
    /// without a store that answers.
    ///
    /// Further keys queue. A queued key has no lease, and its time in the queue does not count as
    /// time of its load. Keys that callers wait for go first, in their order; refreshes go last. When the
    /// [`wait`](Self::wait) of a caller ends in the queue, it gets a stale answer or
    /// [`CacheErrorKind::Full`](crate::CacheErrorKind::Full). Hits and stale answers wait for nothing.
    ///
    /// A load that begins inside another load of this process does not queue, or the two could wait for each
    /// other: bound the outer cache. Loads without a key, and individual loads of private answers, do not count.
    ///
    /// [`build`](Self::build) fails if the bound is zero.
    ///
    /// Default: none, but [`max_flights`](Self::max_flights). A database has a pool that bounds loads
    /// already, and a number that is too small makes loads wait that the source could serve.
    pub fn max_loads(mut self, most: impl Into<Loads>) -> Self {
        let most = most.into();
        let checked = within("max loads", most.most(), 1, usize::MAX);
        self.options.wrong.set(&mut self.options.loads, checked.map(|_| Some(most)));
        self
    }

    /// Sets how many loads of this layer go on in a process after all their callers have left. When there is
    /// one more, the oldest of them is cancelled. [`build`](Self::build) fails if it is zero.
    ///
    /// Default: 64. So clients that ask and leave do not keep the database busy.
    pub fn max_abandoned_loads(self, most: usize) -> Self {
        let most = within("max abandoned loads", most, 1, usize::MAX);
        self.set(|p| &mut p.max_abandoned_loads, most)
    }

    /// Sets what a request does while another caller loads its key.
    ///
    /// Default: [`Wait::for_load`], then an error.
    pub fn wait(self, wait: Wait) -> Self {
        self.with(|p| p.wait = wait)
    }

    /// Sets how long the lease of a key holds without renewal. The leader renews it every third of
    /// that while the load runs. So it bounds how long a key stays blocked when its process dies,
    /// and not how long a load may take.
    ///
    /// The first term is three seconds at most, so that a lost reply blocks a key no longer.
    /// [`build`](Self::build) fails if the lease is not from 100 ms to 1 h.
    ///
    /// Default: 3 s. The lease survives two failed renewals. A process that stands still for longer
    /// counts as dead, and its value is stored only if there is nothing newer.
    pub fn lease(self, lease: Duration) -> Self {
        let lease = within("lease", lease, Duration::from_millis(100), AN_HOUR);
        self.set(|p| &mut p.lease, lease)
    }

    /// Sets the limit on one load. A loader that takes longer is dropped, its lease is released, and
    /// its waiters get an error. [`build`](Self::build) fails if it is not from 1 ms to 24 h.
    ///
    /// Default: 30 s, longer than most clients wait, so that only a loader that hangs meets it.
    pub fn load_timeout(self, limit: Duration) -> Self {
        let limit = within("load timeout", limit, Duration::from_millis(1), AN_HOUR * 24);
        self.set(|p| &mut p.load_timeout, limit)
    }

    /// Sets what becomes of an abandoned load: one whose callers have all left.
    ///
    /// Default: [`WhenAbandoned::Finish`], since a caller usually asks again.
    pub fn when_abandoned(self, when_abandoned: WhenAbandoned) -> Self {
        self.with(|p| p.when_abandoned = when_abandoned)
    }

    /// Sets the largest answer that is stored, encoded, in bytes. A larger one is not stored: callers
    /// of its process share it, and each other process that waits makes an uncached load.
    /// [`build`](Self::build) fails if it is not from 1 to 511 MiB: Redis holds 512 MiB, with the head of an entry.
    ///
    /// Default: 1 MiB. Larger values cost a shared store more than they save.
    pub fn max_entry_bytes(self, most: usize) -> Self {
        self.set(|p| &mut p.max_entry_bytes, within("max entry bytes", most, 1, 511 * 1024 * 1024))
    }

    /// Sets how much longer a load may take after the head of its answer, for [adapters](crate::adapter)
    /// whose answers have a head and a body. The loader enforces [`load_timeout`](Self::load_timeout) for the
    /// head itself, by a [`CacheError`](crate::CacheError), as a [`BoxError`], of the kind `LoadTimedOut`.
    ///
    /// Default: zero: answers have no head.
    pub fn collect_within(self, limit: Duration) -> Self {
        self.with(|p| p.collect_within = limit)
    }

    /// Sets the codec: how an answer becomes bytes, and back.
    ///
    /// Default: [`Json`], for answers that can be cloned and serialised.
    pub fn codec<D>(self, codec: D) -> ReadThroughLayerBuilder<K, D> {
        self.map_codec(|_| codec)
    }

    /// Sets a function that classifies answers: whether an answer is stored and for how long, says
    /// "there is none", is private to its caller, or counts as a failure.
    ///
    /// Default: every answer is stored.
    pub fn classify<T, F>(self, classify: F) -> ReadThroughLayerBuilder<K, RuledCodec<T, C>>
    where
        F: Fn(&T) -> Cacheability + Send + Sync + 'static,
    {
        self.map_codec(|codec| RuledCodec::new(codec).classify(classify))
    }

    /// Sets a function that gives the tags of a request, which its entry will have: names that
    /// entries share, to [invalidate](crate::service::Handle::invalidate_tag) or [expire](crate::service::Handle::expire_tag) all of
    /// them at once. At most [`Tags::MOST`](crate::store::Tags::MOST); a request with more fails with
    /// [`CacheErrorKind::TooManyTags`](crate::CacheErrorKind::TooManyTags).
    ///
    /// The function must use only what is in the key: a request finds no entry that lacks one of its tags,
    /// such as one from before the program had tags. These tags are known before the load, which gives the
    /// strongest guarantee: see the [guide](crate::guide::tags). For tags that only the answer tells, there
    /// is [`answer_tags`](Self::answer_tags).
    ///
    /// Default: none. The function is not called for hits in this process.
    pub fn tags<Req: 'static, L, F, T: IntoIterator<Item = Tag>>(mut self, tags_of: F) -> Self
    where
        K: Fn(&Req) -> L,
        F: Fn(&Req) -> T + Send + Sync + 'static,
    {
        self.options.tags.set(tags_of);
        self
    }

    /// Sets a function that gives the tags of an answer, in addition to those of its
    /// [request](Self::tags). An answer with more than [`Tags::MOST`](crate::store::Tags::MOST) in all is
    /// shared by the waiters and not stored, which is logged.
    ///
    /// The tags must not borrow from the answer: collect an iterator into a `Vec`.
    ///
    /// It runs after the load, together with [`classify`](Self::classify). With `RedisStore`, a
    /// lookup learns of such tags from the entry: a process needs two round trips for its first hit.
    ///
    /// Default: none.
    pub fn answer_tags<A, T: IntoIterator<Item = Tag>>(
        self,
        tags_of: impl Fn(&A) -> T + Send + Sync + 'static,
    ) -> ReadThroughLayerBuilder<K, RuledCodec<A, C>> {
        self.map_codec(|codec| RuledCodec::new(codec).tags(tags_of))
    }

    /// Lets [`crate::service::Handle::clear`] remove all entries of this layer at once: they get a tag that all
    /// clearable layers over the store share, and that does not count among their tags.
    ///
    /// Default: off. The tag costs what another tag costs.
    pub fn clearable(mut self) -> Self {
        self.options.tags.is_clearable = true;
        self
    }

    /// Switches the cache off with `false`, as from configuration: see [off](crate::service#off). Requests
    /// load, and read and store nothing. What is invalidated is gone for processes where it is on.
    ///
    /// Default: `true`.
    pub fn enabled(self, enabled: bool) -> Self {
        self.with(|p| p.enabled = enabled)
    }

    /// Only compares, with `true`: [shadow mode](crate::service#in-shadow-mode). Requests get what is loaded.
    ///
    /// Default: `false`.
    pub fn shadow(self, shadow: bool) -> Self {
        self.with(|p| p.is_shadow = shadow)
    }

    /// Sets which share of hits is loaded again in the background, to find missing invalidations: see
    /// [audits](crate::service#audits). [`build`](Self::build) fails if it is not from 0 to 1.
    ///
    /// Default: 0, which costs nothing. 0.001 is one of 1,000.
    pub fn audit(self, rate: f64) -> Self {
        self.set(|p| &mut p.audit, within("audit rate", rate, 0.0, 1.0))
    }

    /// Sets a function that says whether two values are the same, for [audits](crate::service#audits). It is
    /// asked if their bytes differ, as those of equal hash maps may, and for values without bytes.
    ///
    /// Default: none, values with other bytes are other values.
    pub fn compare_by<A>(
        self,
        is_same: impl Fn(&A, &A) -> bool + Send + Sync + 'static,
    ) -> ReadThroughLayerBuilder<K, RuledCodec<A, C>> {
        self.map_codec(|codec| RuledCodec::new(codec).compare_by(is_same))
    }

    /// Names the layer in metrics and log messages: one name per layer, from a small fixed set.
    ///
    /// Default: `unnamed`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Sets how much of a key is in the [spans](crate::trace) and log messages of the layer.
    ///
    /// Default: [`TraceKeys::Kind`]. Keys may be personal data, and traces are read by many people.
    pub fn trace_keys(mut self, keys: TraceKeys) -> Self {
        self.options.trace_keys = keys;
        self
    }

    /// Sets the length of the cooldown, in which the whole fleet shares a failure: `first` once it
    /// is confirmed, twice as long after each further failure in a row, and never longer than
    /// `longest`. In the cooldown, callers get a stale answer or the failure, at once. A `first` of
    /// zero shares a failure with no later caller.
    ///
    /// A second failure in a row [confirms](ErrorClass::Failure) the first. A load that reaches
    /// [`load_timeout`](Self::load_timeout) is also an error for the waiters that waited for all of it.
    ///
    /// [Probes](Self::failure_probes) try the key, and the first load that succeeds ends the cooldown.
    /// [`build`](Self::build) fails if `longest` is shorter than `first`, or longer than an hour.
    ///
    /// Default: 1 s up to 30 s. A failing source is usually overloaded, so retries back off.
    pub fn failure_windows(self, first: Duration, longest: Duration) -> Self {
        let longest = within("longest failure window", longest, first, AN_HOUR);
        self.set(|p| &mut p.failures.windows, longest.map(|longest| Doubling { first, longest }))
    }

    /// Sets the pause before a probe: how long a failing key is not loaded before one caller of the
    /// fleet may probe it. The pause is `first` after the failure is confirmed, doubles after each
    /// failed probe, and is never longer than `longest` or the [cooldown](Self::failure_windows). No
    /// other caller waits for a probe. So in one pause the fleet loads a failing key at most once,
    /// besides the load that confirms the failure. [`build`](Self::build) fails if `longest` is
    /// shorter than `first`, or longer than an hour.
    ///
    /// Default: 100 ms up to 1 s, so the fleet notices that a source is back within a second and
    /// one load. To have no probes, set it to the same durations as the
    /// [cooldown](Self::failure_windows).
    pub fn failure_probes(self, first: Duration, longest: Duration) -> Self {
        let longest = within("longest pause between probes", longest, first, AN_HOUR);
        self.set(|p| &mut p.failures.cooldowns, longest.map(|longest| Doubling { first, longest }))
    }

    /// Sets a function that classifies the loader's errors: whether an error is a failure of the
    /// source, says that there is no such thing, or is not to be remembered. See [`ErrorClass`].
    ///
    /// The function gets the first `E` among the error and its [sources](std::error::Error::source), also
    /// within a [`BoxError`] of middleware. If the first error has none, a warning names both types.
    ///
    /// Default: every error is an [`ErrorClass::Failure`]. One request may have caused it, and it
    /// costs one more load to find out.
    pub fn classify_error<E: StdError + 'static>(
        mut self,
        classify: impl Fn(&E) -> ErrorClass + Send + Sync + 'static,
    ) -> Self {
        self.options.errors.classify = Some(ErrorRule::of(classify));
        self
    }

    /// Sets what other processes learn of a loader's error: up to 256 bytes of text, which every
    /// reader of the store can see. Callers in this process that share a failure get the error
    /// itself.
    ///
    /// Default: its type, and the kind of an I/O error among its sources, since a message may hold personal data.
    pub fn describe_failures<E: StdError + 'static>(
        mut self,
        describe: impl Fn(&E) -> String + Send + Sync + 'static,
    ) -> Self {
        self.options.errors.describe = Some(ErrorRule::of(describe));
        self
    }

    /// As [`classify_error`](Self::classify_error), for errors of any type.
    pub fn classify_any_error(
        mut self,
        classify: impl Fn(&(dyn StdError + 'static)) -> ErrorClass + Send + Sync + 'static,
    ) -> Self {
        self.options.errors.classify = Some(ErrorRule::of_any(classify));
        self
    }

    /// Sets what a request does when the store fails.
    ///
    /// Default: [`WhenStoreFails::Load`].
    pub fn when_store_fails(self, when_store_fails: WhenStoreFails) -> Self {
        self.with(|p| p.when_store_fails = when_store_fails)
    }

    /// Sets an option of an [adapter](crate::adapter) to a value that it has checked. If the value is
    /// wrong, [`build`](Self::build) returns the error, unless an option before it is wrong too.
    pub fn set_checked<T>(&mut self, option: &mut T, checked: Result<T, ConfigError>) {
        self.options.wrong.set(option, checked);
    }

    /// Sets an option of the policy.
    fn with(mut self, set: impl FnOnce(&mut Policy)) -> Self {
        set(&mut self.options.policy);
        self
    }

    /// Sets an option of the policy to a value that was checked.
    fn set<T>(
        mut self,
        option: impl FnOnce(&mut Policy) -> &mut T,
        value: Result<T, ConfigError>,
    ) -> Self {
        self.options.wrong.set(option(&mut self.options.policy), value);
        self
    }

    pub(crate) fn map_codec<D>(self, map: impl FnOnce(C) -> D) -> ReadThroughLayerBuilder<K, D> {
        let Self { key_of, codec, options } = self;
        ReadThroughLayerBuilder { key_of, codec: map(codec), options }
    }

    /// The layer.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn build(self) -> Result<ReadThroughLayer<K, C>, ConfigError> {
        let Self { key_of, codec, options } = self;
        let LayerOptions { store, policy, loads, errors, tags, name, trace_keys, wrong } = options;
        wrong.result()?;
        let loads = UnderWay::new(&policy, loads);
        let statistics = Statistics::new(name, trace_keys, &(Arc::clone(&loads) as _));
        let codec = Arc::new(codec);
        let core = Core { store, policy, codec, errors, tags, loads, statistics };
        Ok(ReadThroughLayer { key_of, core: Arc::new(core) })
    }
}

crate::debug_fields! { ReadThroughLayerBuilder<K, C> => |it|
    name = it.options.name, store = it.options.store, policy = it.options.policy
}

const AN_HOUR: Duration = Duration::from_secs(60 * 60);
