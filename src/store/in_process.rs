//! `InProcessStore`: stores that hold values and not only bytes.

use std::sync::Arc;

use super::Store;
use super::memory::MemoryStore;

/// A store that holds the [`Value`](super::Value)s that it is given, and gives back those very
/// values: in the memory of this process, for this process only. So it can hold what is never
/// encoded: see [`Cache::in_process`](crate::Cache::in_process).
///
/// Implement it for a store of your own if each entry that it finds is one that a commit of this
/// process has brought. A value that is made again, of its bytes, is a miss.
#[diagnostic::on_unimplemented(
    message = "`{Self}` may be shared with other processes, so it cannot hold values that are never encoded",
    label = "not a store of this process alone",
    note = "a `MemoryStore` is one; for a shared store, `Cache::builder` and `ReadThroughLayer::builder` encode values"
)]
pub trait InProcessStore: Store {}

impl InProcessStore for MemoryStore {}

impl<S: InProcessStore + ?Sized> InProcessStore for Arc<S> {}
