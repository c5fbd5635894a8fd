//! Metrics: publishes [`LockStats`] through the `metrics` facade, as
//! [`bellwether::metrics`] does with the statistics of caches. Call it where you call those.
//!
//! ```
//! use bellwether_lock::{LocalLock, Locks, metrics};
//!
//! let locks = Locks::new(LocalLock::new());
//! let scrape = move || {
//!     metrics::publish_locks("local", &locks.stats());
//!     // then render
//! };
//! scrape();
//! ```
//!
//! # Names
//! All begin with `bellwether_`. The name that you pass is the value of `kind`, so give each set of
//! locks a name of its own. Keys are never labels.
//!
//! | metric | type | labels | what it is |
//! |---|---|---|---|
//! | `lock_waits_total` | counter | `kind`, `result` | attempts that have ended: `acquired`, `busy`, `timed_out`, `failed`, `left` |
//! | `lock_wait_duration_seconds` | histogram | `kind` | how long attempts took |
//! | `lock_held` | gauge | `kind` | keys that this process holds |
//! | `lock_lost_total` | counter | `kind` | holds that were lost before their holder released them |
//! | `lock_renewals_total` | counter | `kind`, `result` | renewals of a hold: `renewed`, `failed` |

use bellwether::metrics::{describe_metrics, publish_histogram};
use metrics_facade::{counter, gauge};

use super::LockStats;

/// Tells the installed recorder what each metric is, as [`bellwether::metrics::describe`] does for
/// those of caches and stores. Call it once, after the recorder was installed.
pub fn describe() {
    describe_metrics(LockStats::METRICS);
}

/// Publishes the statistics of a set of locks under this name.
pub fn publish_locks(name: &str, stats: &LockStats) {
    let results = [
        ("acquired", stats.acquired),
        ("busy", stats.busy),
        ("timed_out", stats.timed_out),
        ("failed", stats.failed),
        ("left", stats.left),
    ];
    for (result, count) in results {
        let kind = name.to_owned();
        counter!("bellwether_lock_waits_total", "kind" => kind, "result" => result).absolute(count);
    }
    for (result, count) in [("renewed", stats.renewed), ("failed", stats.renewals_failed)] {
        let kind = name.to_owned();
        counter!("bellwether_lock_renewals_total", "kind" => kind, "result" => result)
            .absolute(count);
    }
    counter!("bellwether_lock_lost_total", "kind" => name.to_owned()).absolute(stats.lost);
    gauge!("bellwether_lock_held", "kind" => name.to_owned()).set(stats.held as f64);
    let kind = [("kind", name)];
    publish_histogram("bellwether_lock_wait_duration_seconds", &kind, &stats.wait_times);
}
