//! For tests of services that use [`bellwether`], and of stores for it.
//!
//! - [`faulty`] has a store that fails on request, for tests of services that must survive it.
//! - [`conformance`] has the [contract](bellwether::store) of stores as checks, for stores of your own.
//! - [`StoreExt`] has each way to end a lease or to change an entry as a method.
//! - [`suite`] has what conformance suites are made of, for contracts of your own.

pub mod conformance;
pub mod faulty;
mod store_ext;
pub mod suite;

pub use self::store_ext::StoreExt;
