//! Fuzz tests: any bytes at rest, and any replies.

mod at_rest;
mod replies;
