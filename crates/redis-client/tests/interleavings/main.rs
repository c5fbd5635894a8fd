//! The connection that requests share, under every interleaving of threads: by [loom](https://docs.rs/loom).
//!
//! The code under test is the file of the crate itself. What it names of `std`, `tokio` and `bellwether` is here, with the
//! locks and atomics of loom; and so are what it connects to and what it sends.

extern crate bellwether as real_bellwether;
extern crate self as bellwether;
extern crate self as std;
extern crate self as tokio;
extern crate std as real_std;
extern crate tokio as real_tokio;

use real_std::{cell, collections, fmt, future, marker, mem, pin, thread_local};
use real_tokio::{select, task_local};

mod adapter;
mod callers;
mod connection;
mod connector;
mod network;
mod one_task;
#[expect(dead_code, reason = "callers here do not look whether a request was repeated")]
mod request;
mod retry_pauses;
mod server_error;
#[expect(dead_code, reason = "what is not interleaved here")]
#[path = "../../src/shared_connection.rs"]
mod shared_connection;
mod shared_task;
mod silence;
mod sync;
mod task;
mod time;
