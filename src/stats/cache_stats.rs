//! The statistics of a layer.

use super::counters::{by_event, counters};
use super::histogram::HistogramStats;
use crate::metric_table;
use crate::status::LoadLocation;

/// What a layer and all its services have done in this process. Made by
/// [`Handle::stats`](crate::service::Handle::stats) and
/// [`ReadThroughLayer::stats`](crate::ReadThroughLayer::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CacheStats {
    /// What is under way at this moment.
    pub current: CurrentStats,
    /// How requests ended.
    pub requests: RequestStats,
    /// Calls of the loader, by why they started.
    pub loads: LoadStats,
    /// What ended waits for the load of another process.
    pub wakes: WakeStats,
    /// Leases of this process.
    pub leases: LeaseStats,
    /// What became of loaded answers that were to be stored.
    pub commits: CommitStats,
    /// Stored answers that could not be decoded: each was a miss. Their type has changed, or is another
    /// one in another process.
    pub undecodable: u64,
    /// Loads in the background.
    pub refreshes: RefreshStats,
    /// Stored values that were compared with what was loaded since.
    pub audits: AuditStats,
    /// How long ago the values were stored that an [audit](AuditStats) has found to be wrong.
    pub stale_ages: HistogramStats,
    /// Requests that a limit refused.
    pub refused: LimitStats,
    /// Changes through handles.
    pub invalidations: InvalidationStats,
    /// Calls of the loader that have ended: how many and how long they took, by their result.
    pub load_times: LoadTimeStats,
    /// How long callers waited for the load of another caller that answered them.
    pub wait_times: WaitTimeStats,
    /// How many callers each flight had: the size of the stampedes that were held back. A caller
    /// that asks again is in several flights. Flights that no caller has joined are left out.
    pub flight_callers: HistogramStats,
    /// For how long a load of another process had ended when a flight noticed it: what the answers
    /// of other processes lose against a load of one's own. By the store's clock, so it does not
    /// depend on clocks of processes.
    pub notice_lag: HistogramStats,
}

impl CacheStats {
    /// Calls of the loader that have started and not ended yet.
    pub fn running_loads(&self) -> u64 {
        self.loads.total().saturating_sub(self.load_times.total())
    }
}

/// What is under way in a layer and all its services at this moment. These figures rise and fall;
/// [`CacheStats::running_loads`] says how many loads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentStats {
    /// Flights: keys that this process loads, or whose load in another process it waits for, at most
    /// [`max_flights`](crate::service::ReadThroughLayerBuilder::max_flights) of each kind. Uncached loads and forced
    /// refreshes have flights of their own.
    pub flights: u64,
    /// Callers that wait in these flights. A caller that opened one is among them.
    pub waiters: u64,
    /// Flights that wait for their load because
    /// [`max_loads`](crate::service::ReadThroughLayerBuilder::max_loads) are under way.
    pub queued_loads: u64,
    /// Keys whose last loads have failed, as far as this process remembers: callers share the failure
    /// or get a stale answer, and now and then one of them may load.
    pub failing_keys: u64,
}

metric_table! { CacheStats, "cache":
    Counter "bellwether.requests" "{request}" "Requests, by how they ended." = |it, to| {
        for (field, count) in it.requests.by_name() {
            let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
            to.labelled(&[("outcome", outcome), ("detail", detail)], count);
        }
    };
    Counter "bellwether.loads.started" "{load}" "Calls of the loader, by why they started."
        = |it, to| to.each("why", it.loads.by_name());
    Counter "bellwether.wakes" "{wake}"
        "Ends of waits for the load of another process. A missed push is a poll that found its end."
        = |it, to| to.each("by", it.wakes.by_name());
    Counter "bellwether.leases" "{lease}" "Leases that this process asked for."
        = |it, to| to.each("event", it.leases.by_name());
    Counter "bellwether.commits" "{commit}" "Loaded answers that were to be stored."
        = |it, to| to.each("result", it.commits.by_name());
    Counter "bellwether.undecodable" "{answer}"
        "Stored answers that could not be decoded: their type is another one."
        = |it, to| to.one(it.undecodable);
    Counter "bellwether.refreshes" "{refresh}" "Loads in the background, by how they ended."
        = |it, to| to.each("result", it.refreshes.by_name());
    Counter "bellwether.refreshed.values" "{value}"
        "Stored values that a load has replaced, by whether it changed them."
        = |it, to| to.each("value", it.audits.named(&["changed", "unchanged"]));
    Counter "bellwether.audits" "{audit}" "Fresh values that were loaded again to compare them."
        = |it, to| to.each("result", it.audits.named(&["confirmed", "stale_served", "undecided"]));
    Counter "bellwether.shadow" "{load}" "What a cache in shadow mode would have done."
        = |it, to| to.each("result", it.audits.named(&["would_hit", "would_miss", "would_be_wrong"]));
    Counter "bellwether.refused" "{request}" "Requests that a limit refused."
        = |it, to| to.each("limit", it.refused.by_name());
    Counter "bellwether.invalidations" "{invalidation}" "Invalidations and expirations."
        = |it, to| to.each("event", it.invalidations.by_name());
    Gauge "bellwether.loads.running" "{load}" "Loads that have started and not ended."
        = |it, to| to.one(it.running_loads());
    Gauge "bellwether.loads.queued" "{load}" "Loads that wait, since as many are under way as may be."
        = |it, to| to.one(it.current.queued_loads);
    Gauge "bellwether.flights" "{flight}"
        "Keys that are loaded, or whose load in another process is waited for."
        = |it, to| to.one(it.current.flights);
    Gauge "bellwether.waiters" "{request}" "Callers that wait for these keys."
        = |it, to| to.one(it.current.waiters);
    Gauge "bellwether.failing_keys" "{key}" "Keys whose last loads have failed."
        = |it, to| to.one(it.current.failing_keys);
    Histogram "bellwether.load.duration" "s" "How long loads took."
        = |it, to| to.each("result", it.load_times.by_name());
    Histogram "bellwether.wait.duration" "s"
        "How long callers waited for the load of another caller that answered them."
        = |it, to| to.each("place", it.wait_times.by_name());
    Histogram "bellwether.flight.callers" "{caller}" "How many callers shared a load."
        = |it, to| to.one(it.flight_callers);
    Histogram "bellwether.stale.age" "s"
        "How long ago the values were stored that an audit or a shadow has found to be wrong."
        = |it, to| to.one(it.stale_ages);
    Histogram "bellwether.notice.lag" "s"
        "How long ago the load of another process had ended when its waiters noticed."
        = |it, to| to.one(it.notice_lag);
}

counters! {
    /// How requests ended: each one counts once, in one of these.
    pub struct RequestStats by pub(crate) RequestEvent of u64 {
        /// Answered at once by a fresh entry of this process: of a `MemoryStore`, or a near copy.
        hit_local: HitLocal,
        /// Answered by a fresh entry that the store gave when it was asked.
        hit_store: HitStore,
        /// Answered by a stale entry, which a load replaces in the background.
        stale_revalidating: StaleRevalidating,
        /// Answered by a stale entry, because the load failed.
        stale_load_failed: StaleLoadFailed,
        /// Answered by a stale entry, because the load was slow.
        stale_load_slow: StaleLoadSlow,
        /// Answered by a stale entry, because the wait or the time until the deadline ran out.
        stale_wait_ran_out: StaleWaitRanOut,
        /// Answered by a stale entry, because a limit was reached.
        stale_no_room: StaleNoRoom,
        /// Answered by a copy from before the store failed, because the load failed or was late.
        stale_store_failed: StaleStoreFailed,
        /// Answered by its own load, whose answer was stored.
        led_stored: LedStored,
        /// Answered by its own load, whose answer was not stored.
        led_unstored: LedUnstored,
        /// Answered by the load of another caller in this process.
        collapsed_local: CollapsedLocal,
        /// Answered by the load of another process.
        collapsed_remote: CollapsedRemote,
        /// Went past the cache, because it had no key.
        bypassed_no_key: BypassedNoKey,
        /// Went past the cache, because answers for its key are not kept.
        bypassed_private: BypassedPrivate,
        /// Went past the cache, because the store failed.
        bypassed_store_failed: BypassedStoreFailed,
        /// Loaded for itself, because the wait for another load ran out.
        bypassed_wait_ran_out: BypassedWaitRanOut,
        /// Loaded, because the cache is off.
        bypassed_disabled: BypassedDisabled,
        /// Failed with the loader's error.
        failed_loader: FailedLoader,
        /// Failed because another caller loads and the policy is to fail fast.
        failed_contended: FailedContended,
        /// Failed at the caller's deadline.
        failed_deadline: FailedDeadline,
        /// Failed because a limit was reached.
        failed_full: FailedFull,
        /// Failed because the key is in cooldown.
        failed_cooldown: FailedCooldown,
        /// Failed because the loader of another process said that there is no such thing.
        failed_not_found: FailedNotFound,
        /// Failed because the loader panicked.
        failed_panicked: FailedPanicked,
        /// Failed because the load was dropped before it ended.
        failed_lost: FailedLost,
        /// Failed because the load took too long.
        failed_load_timed_out: FailedLoadTimedOut,
        /// Failed because the store failed.
        failed_store: FailedStore,
        /// Failed because the wait for another load ran out.
        failed_wait_timed_out: FailedWaitTimedOut,
        /// Failed because the program uses the cache wrongly: a key that is too long, too many tags,
        /// or no runtime.
        failed_misuse: FailedMisuse,
        /// A [`Cache::get`](crate::Cache::get) that found nothing: it loads nothing.
        missed: Missed,
        /// Its caller left before it was answered.
        left: Left,
    }
}

impl RequestStats {
    /// Requests that a fresh entry answered.
    pub fn hits(&self) -> u64 {
        self.outcome("hit_")
    }

    /// Requests that a stale entry answered.
    pub fn stale(&self) -> u64 {
        self.outcome("stale_")
    }

    /// Requests that their own load answered.
    pub fn led(&self) -> u64 {
        self.outcome("led_")
    }

    /// Requests that the load of another caller answered. Each of them is a load that the source
    /// was spared.
    pub fn collapsed(&self) -> u64 {
        self.outcome("collapsed_")
    }

    /// Requests that went past the cache.
    pub fn bypassed(&self) -> u64 {
        self.outcome("bypassed_")
    }

    /// Requests that ended with an error.
    pub fn failed(&self) -> u64 {
        self.outcome("failed_")
    }

    fn outcome(&self, prefix: &str) -> u64 {
        let counters = self.by_name().filter(|(name, _)| name.starts_with(prefix));
        counters.map(|(_, count)| count).sum()
    }
}

counters! {
    /// Calls of the loader, by why they started. Requests of a batch count one each, though one call loads
    /// them.
    pub struct LoadStats by pub(crate) LoadReason of u64 {
        /// Nothing usable was stored.
        miss: Miss,
        /// A stale answer is replaced in the background.
        revalidation: Revalidation,
        /// A fresh answer is replaced before it becomes stale.
        early: Early,
        /// A caller forced it.
        forced: Forced,
        /// A fresh answer is loaded again to compare it.
        audit: Audit,
        /// The store failed: without its lease. At most this process keeps the answer.
        store_failed: StoreFailed,
        /// Answers for the key are private or cannot be stored: without a lease.
        private: Private,
        /// A wait for another load ran out: without a lease, and the answer is not stored.
        wait_ran_out: WaitRanOut,
        /// The request has no key: without a lease, and the answer is not stored.
        no_key: NoKey,
        /// The cache is off: without a lease, and the answer is not stored.
        disabled: Disabled,
    }
}

impl LoadStats {
    /// Loads under a lease, of which a key has one at a time in the whole fleet.
    pub fn leased(&self) -> u64 {
        self.miss + self.revalidation + self.early + self.forced + self.audit
    }

    /// Loads without a lease. Each may repeat the load of another process.
    pub fn uncached(&self) -> u64 {
        self.store_failed + self.private + self.wait_ran_out + self.no_key + self.disabled
    }
}

counters! {
    /// How long loads took, by their result.
    pub struct LoadTimeStats by pub(crate) LoadResult of HistogramStats {
        /// With an answer that can be shared.
        succeeded: Succeeded,
        /// With the answer that there is none.
        not_found: NotFound,
        /// With an answer that is private to its caller.
        private: Private,
        /// With an error, or with an answer that counts as a failure.
        failed: Failed,
        /// At the [limit](crate::service::ReadThroughLayerBuilder::load_timeout).
        timed_out: TimedOut,
        /// With a panic.
        panicked: Panicked,
        /// It was dropped before it ended: its callers had left, or the runtime went down.
        cancelled: Cancelled,
    }
}

by_event! {
    /// How long callers waited for the load of another caller that answered them. Each request that
    /// counts as [collapsed](RequestStats::collapsed) is in one of them.
    pub struct WaitTimeStats by LoadLocation of HistogramStats {
        /// For a load of this process.
        here: Local,
        /// For a load of another process.
        elsewhere: Remote,
    }
}

counters! {
    /// What ended waits for the load of another process. A load ends one wait of each waiting process
    /// by a push, and a load of more than 0.2 s about five per second by a pause. If many are missed
    /// pushes, push messages do not arrive: waiters poll.
    pub struct WakeStats by pub(crate) WakeEvent of u64 {
        /// The store reported a change.
        push: Push,
        /// A pause was over, and that was no fault: the load went on, its lease was free, or the store
        /// never [reports changes](crate::store::Watch::silent).
        pause: Pause,
        /// A pause was over, and the store had what the load ended with. It should have reported that,
        /// and the report had not come.
        missed_push: MissedPush,
        /// The last caller left.
        abandoned: Abandoned,
    }
}

counters! {
    /// Leases that flights of this process asked for.
    pub struct LeaseStats by pub(crate) LeaseEvent of u64 {
        /// Granted.
        granted: Granted,
        /// Not granted, because another process has it.
        busy: Busy,
        /// Renewed during a load.
        renewed: Renewed,
        /// Lost during a load: it lapsed, was taken over, or was ended by an invalidation.
        lost: Lost,
    }
}

counters! {
    /// What became of loaded answers that were to be stored.
    pub struct CommitStats by pub(crate) CommitEvent of u64 {
        /// Stored.
        stored: Stored,
        /// Refused as outdated: an invalidation or a newer answer came in between.
        superseded: Superseded,
        /// The store failed: the answer may be stored or not.
        unacknowledged: Unacknowledged,
        /// Not stored, because its bytes would not [give it again](crate::codec::Codec::verify).
        unfaithful: Unfaithful,
    }
}

counters! {
    /// Loads in the background, for which no caller waits.
    pub struct RefreshStats by pub(crate) RefreshEvent of u64 {
        /// Those that loaded an answer.
        succeeded: Succeeded,
        /// Those that failed. Their callers got a stale or a fresh answer, and no error.
        failed: Failed,
    }
}

counters! {
    /// Stored values that were compared with what was loaded since: by each load that replaces a value, by
    /// [audits](crate::service::ReadThroughLayerBuilder::audit), and in
    /// [shadow mode](crate::service::ReadThroughLayerBuilder::shadow).
    pub struct AuditStats by pub(crate) AuditEvent of u64 {
        /// A load has replaced a stored value, fresh or stale, by another one. In a cache whose writers
        /// all [invalidate](crate::Cache::invalidate), each of them is a missing invalidation.
        changed: Changed,
        /// A load has replaced a stored value by an equal one.
        unchanged: Unchanged,
        /// An audit has found that a fresh value is what the source says.
        confirmed: Confirmed,
        /// An audit has found that a fresh value was wrong: callers got it after the source had changed.
        stale_served: StaleServed,
        /// A value was another one, and was invalidated or replaced since, as it should be.
        undecided: Undecided,
        /// In shadow mode: a load for which a fresh value was stored.
        would_hit: WouldHit,
        /// In shadow mode: a load that has stored its value.
        would_miss: WouldMiss,
        /// In shadow mode: the stored value was wrong.
        would_be_wrong: WouldBeWrong,
    }
}

impl AuditStats {
    /// Those of these names, for a metric about them.
    fn named<'a>(&self, names: &'a [&str]) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
        self.by_name().filter(move |(name, _)| names.contains(name))
    }
}

counters! {
    /// Requests that a limit refused. Each of them failed, or got a stale answer.
    pub struct LimitStats by pub(crate) LimitEvent of u64 {
        /// [`max_waiters`](crate::service::ReadThroughLayerBuilder::max_waiters).
        waiters: Waiters,
        /// [`max_flights`](crate::service::ReadThroughLayerBuilder::max_flights).
        flights: Flights,
        /// [`max_loads`](crate::service::ReadThroughLayerBuilder::max_loads).
        loads: Loads,
    }
}

counters! {
    /// Changes through handles.
    pub struct InvalidationStats by pub(crate) InvalidationEvent of u64 {
        /// Keys that were invalidated.
        invalidated: Invalidated,
        /// Keys that were expired.
        expired: Expired,
        /// Keys whose values were [put](crate::Cache::put), stored or not: an older value is gone.
        put: Put,
        /// Tags that were invalidated. To clear a layer is to invalidate the tag of all its entries.
        invalidated_tags: InvalidatedTags,
        /// Tags that were expired.
        expired_tags: ExpiredTags,
        /// Changes that failed: they may have happened or not.
        failed: Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_in_one_of_the_groups() {
        for event in 0..RequestStats::COUNT {
            let stats = RequestStats::read(|counter| u64::from(counter == event));
            let groups = [
                stats.hits(),
                stats.stale(),
                stats.led(),
                stats.collapsed(),
                stats.bypassed(),
                stats.failed(),
                stats.missed,
                stats.left,
            ];
            assert_eq!((stats.total(), groups.iter().sum::<u64>()), (1, 1), "{stats:?}");
        }
    }

    #[test]
    fn every_load_starts_with_a_lease_or_without() {
        for reason in 0..LoadStats::COUNT {
            let stats = LoadStats::read(|counter| u64::from(counter == reason));
            assert_eq!(stats.leased() + stats.uncached(), 1, "{stats:?}");
        }
    }
}
