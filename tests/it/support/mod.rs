//! Stores that do what a test says.

pub(crate) mod store;
