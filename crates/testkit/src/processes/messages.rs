//! The messages between a test and its worker processes.

use serde::{Deserialize, Serialize};

/// The environment variable that makes a process a worker. It holds the worker's setup, in JSON.
pub(super) const SETUP_VARIABLE: &str = "BELLWETHER_WORKER";

/// The first character of a worker's own lines. Its test harness prints other lines.
pub(super) const MARK: char = '@';

/// A command, and the number by which it is answered: a line of JSON.
#[derive(Deserialize, Serialize)]
pub(super) struct Order<C> {
    pub(super) id: u64,
    pub(super) command: C,
}

/// A message of a worker: a line of JSON.
#[derive(Deserialize, Serialize)]
pub(super) enum WorkerMessage<R> {
    /// It is ready for commands, or why it cannot be.
    Opened(Result<(), String>),
    /// The reply to the command of that number.
    Reply { id: u64, reply: R },
}
