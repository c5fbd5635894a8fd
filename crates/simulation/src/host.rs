//! Hosts: what runs as one process, with a runtime and a clock of its own.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, SystemTime};

use bellwether_redis_client::simulated::WALL_CLOCK;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, advance, sleep_until};

/// A moment of the simulated world, in milliseconds from its begin.
pub(crate) type Millis = u64;

thread_local! {
    /// How many tasks of this thread have panicked.
    pub(crate) static PANICS: Cell<u64> = const { Cell::new(0) };

    /// What wakes the future that waits until the runtime of this thread is idle.
    static IDLE: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// A runtime whose clock is moved by the world. What it runs ends when this is dropped, as that of a process
/// that is killed.
#[derive(Debug)]
pub(crate) struct Host {
    runtime: Runtime,
    /// Its clock when it began, and when that was.
    begin: (Instant, Millis),
}

/// For how many milliseconds a host runs at once, at most: what it sends then is late by these, or its timers are.
pub(crate) const LONGEST_STEP: Millis = 16;

impl Host {
    pub(crate) fn new(now: Millis) -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).on_thread_park(goes_on).build();
        let runtime = runtime.expect("a runtime");
        let begin = (runtime.block_on(async { Instant::now() }), now);
        Self { runtime, begin }
    }

    /// Runs all that is to be done between two moments. If it has not run until the first one, its clock leaps, so
    /// that all timers are late.
    pub(crate) fn run(&self, from: Millis, until: Millis) {
        WALL_CLOCK.set(Some(SystemTime::UNIX_EPOCH + BEGIN + Duration::from_millis(until)));
        let moment = |at| self.begin.0 + Duration::from_millis(at - self.begin.1);
        self.runtime.block_on(async {
            let missed = moment(from).saturating_duration_since(Instant::now());
            if !missed.is_zero() {
                advance(missed).await;
            }
            match until - from {
                // No timer fires within a tick, so it needs none of its own.
                1 => a_tick().await,
                _ => sleep_until(moment(until)).await,
            }
        });
    }

    /// Whether something was spawned or woken from outside since it has run.
    pub(crate) fn has_input(&self) -> bool {
        self.runtime.metrics().global_queue_depth() > 0
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// What `make` makes, in the context of the runtime.
    pub(crate) fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        make()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Ends all that it runs, as a process that is killed. Returns how many tasks have panicked by that.
    ///
    /// Tokio drops tasks in an order that depends on their numbers, and all runtimes of this program share
    /// those. So this has a thread and random numbers of its own.
    pub(crate) fn kill(self) -> u64 {
        let wall_clock = WALL_CLOCK.get();
        let end = move || {
            WALL_CLOCK.set(wall_clock);
            drop(self);
            PANICS.get()
        };
        let end = thread::Builder::new().name("sim:end".into()).spawn(end);
        end.expect("a thread").join().expect("tokio catches panics")
    }

    /// How many tasks have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }
}

/// Waits until nothing else is to be done, and the clock has gone on by a tick then.
async fn a_tick() {
    let mut is_awaited = false;
    poll_fn(|cx| {
        if is_awaited && IDLE.with_borrow(Option::is_none) {
            return Poll::Ready(());
        }
        is_awaited = true;
        IDLE.set(Some(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// Lets the clock go on when a runtime has nothing to do. It fires the timers then, and what they wake runs in the
/// next tick.
fn goes_on() {
    if let Some(waker) = IDLE.take() {
        _ = pin!(advance(TICK)).poll(&mut Context::from_waker(Waker::noop()));
        waker.wake();
    }
}

/// The wall clock at the begin of the world.
pub(crate) const BEGIN: Duration = Duration::from_secs(1_700_000_000);

/// How far the world goes at once.
const TICK: Duration = Duration::from_millis(1);
