//! The instruments, as an exporter gets them, and the contexts of loads.

mod contexts;
mod figures;
mod names;
mod recorded;
mod trace_links;
