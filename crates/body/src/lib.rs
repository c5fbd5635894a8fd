//! Stored responses for caches of HTTP and gRPC: a response with its body and trailers that is given
//! out many times, and bodies that are read up to a bound, joined again and observed on their way.
//!
//! This crate holds what `bellwether-http` and `bellwether-grpc` share. Use it for an adapter of your
//! own whose answers have a head and a body; see [`bellwether::adapter`].

mod body;
mod collect;
mod follow;
mod joined;
mod kept;
mod unreachable;

pub use body::BodyEnd;
pub use body::CacheBody;
pub use collect::{CollectedBody, collect};
pub use follow::{Follow, Followed};
pub use joined::JoinedFrames;
pub use kept::{KeptResponse, Undecodable};
pub use unreachable::is_unreachable;
