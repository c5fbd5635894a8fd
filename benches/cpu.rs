//! The time that the threads of processes have run.

use std::fs;
use std::time::Duration;

/// How long all threads of this process that are still there have run. Zero where the system does
/// not tell.
pub(crate) fn cpu_time() -> Duration {
    of_threads("/proc/self/task")
}

/// The same, of other processes.
pub(crate) fn cpu_time_of(processes: &[u32]) -> Duration {
    processes.iter().map(|pid| of_threads(&format!("/proc/{pid}/task"))).sum()
}

fn of_threads(directory: &str) -> Duration {
    let Ok(threads) = fs::read_dir(directory) else {
        return Duration::ZERO;
    };
    let stats = threads.flatten().map(|thread| thread.path().join("schedstat"));
    stats.filter_map(|stat| nanos_run(&fs::read_to_string(stat).ok()?)).sum()
}

fn nanos_run(stat: &str) -> Option<Duration> {
    let (run, _) = stat.split_once(' ')?;
    run.parse().ok().map(Duration::from_nanos)
}
