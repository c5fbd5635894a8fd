//! The example `catalog`: every endpoint, over JSON and gRPC, and its page in a real browser.

mod api;
mod browser;
mod page;
mod program;
mod server;
#[path = "../support/mod.rs"]
mod support;

/// The messages of the example: what is sent is what it was built with.
#[path = "../../grpc/messages.rs"]
mod messages;
