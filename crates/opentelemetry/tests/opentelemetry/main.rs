//! The instruments, as an exporter gets them, and the contexts of loads.

mod contexts;
mod figures;
mod recorded;
