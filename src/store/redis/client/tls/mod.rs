//! TLS: what a client trusts, what it presents, and what certificate errors mean.

mod connector;
mod explain;
mod identity;
mod material;
mod options;
mod unverified;

pub(super) use self::connector::TlsConnector;
pub(super) use self::explain::explain;
pub use self::options::RedisTls;
