//! `RuntimeWaker`: renewals go on while a worker of the runtime blocks.
//!
//! One worker of a runtime waits for timers and sockets, for all of them. If it then runs a task that
//! blocks, the others sleep on, and no timer fires. What is spawned from outside of the runtime wakes
//! one of them, and that one waits for timers and sockets from then on.

use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use bellwether::adapter::locked;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Wakes a worker of a runtime four times a second, as long as this exists.
pub(super) struct RuntimeWaker(Handle);

/// Of the runtimes with holds. Held for a few steps in the list, never across an `.await`.
static WAKERS: Mutex<Vec<Weak<RuntimeWaker>>> = Mutex::new(Vec::new());

/// The thread that wakes them, which sleeps while there are none. `None` if the system gives none:
/// then renewals depend on the workers.
static THREAD: LazyLock<Option<Thread>> = LazyLock::new(|| {
    let thread = thread::Builder::new().name("bellwether-locks".to_owned()).spawn(wake_all);
    thread.ok().map(|thread| thread.thread().clone())
});

impl RuntimeWaker {
    /// Spawns a task that must go on while workers of the runtime block.
    pub(super) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            runtime.spawn(task);
            return;
        }
        let waker = Self::of(runtime);
        runtime.spawn(async move {
            task.await;
            drop(waker);
        });
        // A worker keeps what it spawned last for itself, and may block before it runs that.
        runtime.spawn(async {});
    }

    fn of(runtime: &Handle) -> Arc<Self> {
        let mut wakers = locked(&WAKERS);
        wakers.retain(|waker| waker.strong_count() > 0);
        let mut known = wakers.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|waker| waker.0.id() == runtime.id()) {
            return known;
        }
        let waker = Arc::new(Self(runtime.clone()));
        wakers.push(Arc::downgrade(&waker));
        drop(wakers);
        THREAD.as_ref().inspect(|thread| thread.unpark());
        waker
    }
}

fn wake_all() {
    loop {
        let wakers: Vec<_> = locked(&WAKERS).iter().filter_map(Weak::upgrade).collect();
        if wakers.is_empty() {
            thread::park();
            continue;
        }
        for waker in wakers {
            waker.0.spawn(async {});
        }
        thread::sleep(EVERY);
    }
}

/// A small part of the shortest usual lease. A wake-up costs some microseconds.
const EVERY: Duration = Duration::from_millis(250);
