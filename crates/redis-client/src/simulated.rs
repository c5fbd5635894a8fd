//! What a simulation puts in place of the system: streams to servers, and the wall clock.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::DuplexStream;

use bellwether::adapter::BoxFuture;

/// Opens a stream to an address.
pub type SimulatedNetwork =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<DuplexStream>> + Send + Sync>;

thread_local! {
    /// The wall clock of the process that this thread simulates now.
    pub static WALL_CLOCK: Cell<Option<SystemTime>> = const { Cell::new(None) };
}
