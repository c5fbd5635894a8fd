//! The faults of a network, as a proxy applies them to its connections.

use std::num::NonZeroU32;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct NetworkFaults {
    /// How often all connections were cut. Connections that began before the last cut must end.
    pub(super) cuts: u64,
    pub(super) to_server: DirectionFaults,
    pub(super) to_client: DirectionFaults,
    /// How long a new connection carries nothing.
    pub(super) begins_after: Duration,
}

/// The faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectionFaults {
    pub(super) silent: bool,
    pub(super) delay: Duration,
    /// Bytes per second; `None` sets no limit.
    pub(super) rate: Option<NonZeroU32>,
}
