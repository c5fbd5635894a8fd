//! The example `catalog`: every endpoint, over JSON and gRPC, its page in a real browser, and what a
//! real Prometheus makes of its metrics with the dashboard and the rules of the folder `observability`.

mod api;
mod browser;
mod collector;
mod dashboard;
mod exporter;
mod faults;
mod locks;
/// The messages of the example: what is sent is what it was built with.
#[path = "../../grpc/messages.rs"]
mod messages;
mod observed;
mod otlp;
mod page;
mod prometheus;
mod rules;
mod server;
mod traces;
