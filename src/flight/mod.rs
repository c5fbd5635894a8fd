//! Flights: request coalescing (single-flight), at most one load per key and process.
//!
//! All callers of a process that ask for one key at the same time share a flight. The caller that
//! opens it gets a [`Leader`] for the task that asks the store and loads. Every caller, the opener
//! too, holds a [`Waiter`] and waits for an outcome.
//!
//! # Generations
//! The leader begins a [generation](Leader::generation) just before each request to the store. The
//! answer completes only the waiters that had joined by then. Later waiters get the answer of a
//! later request: after an invalidation, the earlier answer may be older than their own call.
//!
//! # Invariants
//! 1. A flight in the table has a leader. Dropping the leader removes the flight.
//! 2. A waiter joins under the table's lock, so none joins a flight that has left the table.
//! 3. An outcome wakes its waiter. When the leader is dropped, each remaining waiter gets
//!    `None`, or the outcome that the leader left. No waiter waits for ever.
//! 4. Dropping a waiter frees its slot and nothing else.
//!
//! # Runtimes
//! The task of a flight runs in the runtime of its opener. If that is not driven, as when its only thread
//! blocks, the flight stands still. A waiter of another runtime that has waited for long asks the task for a
//! [sign of life](Leader::signs_of_life). If there is none, the waiter gives the flight up and opens
//! another one, and the two compete for the lease as processes do.
//!
//! # Locks
//! A shard of the table is locked before a flight in it, never after. Both are held for a few map
//! operations, never across an `.await`, and no waker is called while one is held.
//!
//! # Files
//! `table` maps keys to flights and gives callers their part in one, and its first one the leader. `waiters` is
//! one flight with its callers, and bounds the loads that all of them have left.

mod table;
mod waiters;

pub(crate) use table::{Flights, Full, Leader, LonePermit};
pub(crate) use waiters::{AbandonedLoads, Generation, Phase, PhaseListener, Waiter};
