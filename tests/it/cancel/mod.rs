//! A caller may be dropped at any time and delays no other.

mod abandoned;
mod callers;
mod every_poll;
mod runtimes;
mod threads;
mod undriven;
