//! Whoever goes away, whenever, holds up nobody.

mod callers;
mod every_poll;
mod runtimes;
mod threads;
