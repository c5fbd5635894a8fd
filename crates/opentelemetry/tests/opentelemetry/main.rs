//! The instruments, as an exporter gets them, and the contexts of loads.

mod contexts;
mod figures;
#[cfg(all(feature = "lock", feature = "redis"))]
mod names;
mod recorded;
mod trace_links;
