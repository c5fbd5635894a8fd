//! The example `catalog`: every endpoint, over JSON and gRPC, and its page in a real browser.

mod api;
mod browser;
/// The messages of the example: what is sent is what it was built with.
#[path = "../../grpc/messages.rs"]
mod messages;
mod page;
mod server;
