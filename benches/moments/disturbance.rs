//! What disturbs the workers of a run: busy cores, stops, and a quota of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use bellwether_testkit::processes::{freeze, thaw};
use uuid::Uuid;

/// The period of a quota, as of a cgroup.
const PERIOD: Duration = Duration::from_millis(100);

/// Threads that disturb, until it is dropped.
#[derive(Default)]
pub(crate) struct Disturbance {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Disturbance {
    /// A busy loop for each core.
    pub(crate) fn busy(&mut self) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            self.thread(|is_over| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
    }

    /// Stops a process at random, for 0.1 to 1 s at a time.
    pub(crate) fn stop(&mut self, pid: u32) {
        self.thread(move |is_over| {
            while !is_over.load(Ordering::Relaxed) {
                sleep(random(Duration::ZERO, Duration::from_secs(1)));
                freeze(pid);
                sleep(random(Duration::from_millis(100), Duration::from_secs(1)));
                thaw(pid);
            }
        });
    }

    /// Lets a process run for so many hundredths of each period. One that would not run for all of
    /// them is stopped too: that is stricter than a cgroup.
    pub(crate) fn quota(&mut self, pid: u32, percent: u32) {
        self.thread(move |is_over| {
            sleep(random(Duration::ZERO, PERIOD));
            while !is_over.load(Ordering::Relaxed) {
                let runs = PERIOD * percent.min(100) / 100;
                sleep(runs);
                freeze(pid);
                sleep(PERIOD - runs);
                thaw(pid);
            }
        });
    }

    fn thread(&mut self, disturb: impl FnOnce(&AtomicBool) + Send + 'static) {
        let is_over = Arc::clone(&self.is_over);
        self.threads.push(thread::spawn(move || disturb(&is_over)));
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of one says that its process has ended.
            let _ = thread.join();
        }
    }
}

fn random(least: Duration, most: Duration) -> Duration {
    let share = Uuid::new_v4().as_u128() as u32 as f64 / f64::from(u32::MAX);
    least + (most - least).mul_f64(share)
}
