//! A worker process, as the main one sees it. It is killed and reaped on drop.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use bellwether_testkit::processes::{freeze, thaw};

use crate::messages::Setup;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn start(setup: &Setup) -> io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(serde_json::to_string(setup)?)
            // An interrupt at the terminal is for the main process, which tells its workers.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }

    /// Kills it without a clean shutdown.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn stop(&self) {
        freeze(self.child.id());
    }

    pub(crate) fn resume(&self) {
        thaw(self.child.id());
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
