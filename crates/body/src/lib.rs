//! Responses and bodies for caches of HTTP and gRPC: responses that are stored with their body and
//! trailers, and bodies that are read up to a bound, resumed, and observed while they pass through.
//!
//! This crate holds what `bellwether-http` and `bellwether-grpc` share. Use it for an adapter of your
//! own whose answers have a head and a body; see [`bellwether::adapter`].

mod body;
mod budget;
mod buffered_response;
mod collect;
mod joined;
mod observer;
mod unreachable;

pub use body::CacheBody;
pub use budget::{BodyBudget, BudgetShare};
pub use buffered_response::BufferedResponse;
pub use collect::{CollectedBody, UnfinishedReason, collect, collect_while};
pub use observer::{BodyObserver, ObservedBody};
pub use unreachable::is_unreachable;
