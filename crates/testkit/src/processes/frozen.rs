//! Frozen processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::wait::block_until;

/// How long a process may take to freeze.
const PATIENCE: Duration = Duration::from_secs(60);

/// Freezes a process: the system still takes connections and bytes for it, and it answers nothing.
/// When this returns, none of its threads runs.
pub fn freeze(pid: u32) {
    signal(pid, Signal::STOP);
    block_until(PATIENCE, "the process is paused", || is_paused(pid));
}

/// Lets a frozen process go on.
pub fn thaw(pid: u32) {
    signal(pid, Signal::CONT);
}

/// Whether there is such a process, and not only its remains.
pub fn lives(pid: u32) -> bool {
    let is_known = test_kill_process(known(pid)).is_ok();
    is_known && state(Path::new(&format!("/proc/{pid}/stat"))) != Some('Z')
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let sent = kill_process(known(pid), signal);
    sent.unwrap_or_else(|error| panic!("{signal:?} to process {pid}: {error}"));
}

fn known(pid: u32) -> Pid {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.expect("the number of a process")
}

/// Whether a stop has taken effect, which `kill` does not wait for.
fn is_paused(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true; // no such directory on this system: nothing more can be known
    };
    let mut stats = threads.flatten().map(|thread| thread.path().join("stat"));
    stats.all(|stat: PathBuf| state(&stat).is_none_or(|state| state == 'T'))
}

/// The state of a process or thread, by its `stat` file.
fn state(stat: &Path) -> Option<char> {
    let stat = fs::read_to_string(stat).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.chars().next()
}
