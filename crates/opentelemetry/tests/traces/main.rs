//! The spans of two processes that share a Redis, as an exporter of OpenTelemetry gets them.

mod messages;
mod tree;
mod worker;
