//! A process of the fleet: its host, its store, and what its callers do.

use std::future::Future;
use std::mem::replace;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::BoxFuture;
use bellwether_redis::{RedisClientOptions, RedisOptions, RedisStore};

use crate::burst::Burst;
use crate::history::Shared;
use crate::host::{Host, LONGEST_STEP, Millis};
use crate::network::connect;
use crate::operations::{Caller, Get};
use crate::plan::RunPlan;

pub(crate) struct Process {
    pub(crate) host: Host,
    pub(crate) caller: Caller,
    pub(crate) store: RedisStore,
    /// Until when it stands still.
    pub(crate) paused_until: Millis,
    /// Until when it has a quota, and where it is in that at the begin of the world.
    pub(crate) quota: (Millis, Millis),
    /// Whether it has run in the last tick.
    has_run: bool,
    /// Until when its host has run. While nothing happens in it, that is behind.
    ran_until: Millis,
    /// Until when something may follow from what has begun in it.
    is_awake_until: Millis,
}

impl Process {
    /// Starts it in a place, after so many others.
    pub(crate) fn start(
        plan: &RunPlan,
        shared: &Arc<Shared>,
        place: usize,
        times: u32,
        now: Millis,
    ) -> Self {
        let host = Host::new(now);
        let network = shared.network.clone();
        let connect =
            move |to| Box::pin(connect(network.clone(), place, to)) as BoxFuture<'static, _>;
        let options = RedisClientOptions::new(&plan.topology.url(), "sim").expect("an address");
        let options = RedisOptions::from(options.network(Arc::new(connect)))
            .pending_invalidations(plan.kept)
            // The promises are of what others have invalidated, to the microsecond.
            .outage_ttl(Duration::ZERO);
        let is_near = plan.near[place];
        let options = if is_near { options.near(1 << 20) } else { options };
        let store = host.enter(|| options.connect_lazily().expect("options"));
        let caller = Caller {
            shared: Arc::clone(shared),
            process: (place, times),
            cache: host.enter(|| plan.cache(store.clone())),
            near: is_near.then_some(OLDEST_COPY),
            tags_of_answers: plan.tags_of_answers,
            never_fails: plan.failures.is_none(),
            loads_alone_after: plan.loads_alone_after(),
            outlives_faults: plan.faults.iter().all(|it| it.ends_links_only()),
            bounds: plan.bounds(),
        };
        Self {
            host,
            caller,
            store,
            paused_until: 0,
            quota: (0, 0),
            has_run: false,
            ran_until: now,
            is_awake_until: now + AWAKE,
        }
    }

    /// Whether its quota lets it run at a time.
    fn is_within_quota(&self, now: Millis) -> bool {
        let (until, place) = self.quota;
        until <= now || (now + place) % QUOTA_PERIOD < QUOTA
    }

    pub(crate) fn runs(&self, now: Millis) -> bool {
        self.paused_until <= now && self.is_within_quota(now)
    }

    /// Lets it go on for a tick, if it runs. If nothing happens in it, it does so later.
    pub(crate) fn tick(&mut self, shared: &Shared, now: Millis) {
        let (place, _) = self.caller.process;
        let runs = self.runs(now);
        let had_run = replace(&mut self.has_run, runs);
        if !runs {
            if self.paused_until <= now {
                shared.with(|history| *history.paused.entry(place).or_default() += 1);
            }
            return;
        }
        if had_run {
            shared.network.with(|state| state.process_has_run(place));
        }
        let has_input = self.host.has_input();
        if had_run
            && !has_input
            && self.is_awake_until < now
            && now - self.ran_until < LONGEST_STEP
            && shared.with(|it| it.is_quiet(self.caller.process))
        {
            return;
        }
        if has_input {
            self.is_awake_until = now + AWAKE;
        }
        self.run(if has_input || !had_run { now - 1 } else { self.ran_until }, now);
    }

    /// Does what it has put off, if it runs.
    pub(crate) fn catch_up(&mut self, now: Millis) {
        if self.has_run {
            self.run(self.ran_until, now);
        }
    }

    /// Lets it run between two moments.
    fn run(&mut self, from: Millis, until: Millis) {
        if self.ran_until < until {
            self.host.run(from, until);
            self.ran_until = until;
        }
    }

    /// Begins something at a time, for which its clock is right.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static, now: Millis) {
        if self.has_run && !self.host.has_input() {
            self.run(self.ran_until, now - 1);
        }
        self.is_awake_until = now + AWAKE;
        // Futures of operations are large, and the runtime would move them.
        self.host.spawn(Box::pin(task));
    }

    /// Asks for all keys at once.
    pub(crate) fn ask_for_all(&self, burst: Burst, keys: Range<u64>) {
        let load = [burst.load, 0];
        let get = |key| Get { key, load, load_fails: false, deadline: None, forces_refresh: false };
        if burst.is_batch {
            let count = (keys.end - keys.start) as usize;
            return self.host.spawn(self.caller.clone().get_many(get(keys.start), count, None));
        }
        for key in keys {
            self.host.spawn(self.caller.clone().get(get(key), None));
        }
    }
}

/// For how long a process puts nothing off after something has begun in it, or has come from a server.
const AWAKE: Millis = 2;

/// For how long a process with a quota runs, of each period.
const QUOTA: Millis = 20;
pub(crate) const QUOTA_PERIOD: Millis = 100;

/// How old a near copy may be that was invalidated: what the guide says, and two ticks.
const OLDEST_COPY: Millis = 1_252;
