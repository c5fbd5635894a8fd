//! The time that the threads of this process have run.

use std::fs;
use std::time::Duration;

/// How long all threads of this process that are still there have run. Zero where the system does
/// not tell.
pub(crate) fn cpu_time() -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return Duration::ZERO;
    };
    let stats = threads.flatten().map(|thread| thread.path().join("schedstat"));
    stats.filter_map(|stat| nanos_run(&fs::read_to_string(stat).ok()?)).sum()
}

fn nanos_run(stat: &str) -> Option<Duration> {
    let (run, _) = stat.split_once(' ')?;
    run.parse().ok().map(Duration::from_nanos)
}
