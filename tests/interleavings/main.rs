//! Flights, permits and watches, under every interleaving of threads: by [loom](https://docs.rs/loom).
//!
//! The code under test is the files of the crate themselves. What they name of `std` and `tokio` is here, with the locks
//! and atomics of loom.

extern crate self as std;
extern crate self as tokio;
extern crate std as real_std;
extern crate tokio as real_tokio;

use bellwether::debug_fields;
use real_std::{any, collections, convert, fmt, future, mem, pin, ptr};

#[expect(dead_code, unused_imports, reason = "what is not interleaved here")]
#[path = "../../src/flight/mod.rs"]
mod flight;

mod flights;
mod jitter;
mod key;
#[expect(dead_code, unreachable_pub, reason = "what is not interleaved here")]
#[path = "../../src/loads.rs"]
mod loads;
mod locked;
mod permits;
mod runtime;
mod store;
mod sync;
mod tag;
mod task;
mod time;
mod trace;
mod watches;
