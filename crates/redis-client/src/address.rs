//! Addresses of servers.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::{fmt, slice};

use bellwether::ConfigError;

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Where the servers of a client are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Servers {
    One(ServerAddress),
    /// A cluster, by some of its nodes.
    Cluster {
        seeds: Vec<ServerAddress>,
    },
    /// The primary of a service, as its sentinels name it.
    Sentinel {
        sentinels: Vec<ServerAddress>,
        service: String,
    },
}

impl ServerAddress {
    /// A host, perhaps with a port.
    ///
    /// # Errors
    /// If it is not that. The message does not repeat it, because a password may be part of it.
    pub(super) fn parse(text: &str, port: u16) -> Result<Self, ConfigError> {
        let (host, given) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => {
                host.parse::<Ipv6Addr>().map_err(|_| refused(HOST))?;
                (host, if rest.is_empty() { None } else { Some(rest) })
            }
            None => {
                let (host, given) = text.split_at(text.find(':').unwrap_or(text.len()));
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if host.is_empty() || !host.bytes().all(fits) {
                    return Err(refused(HOST));
                }
                (host, if given.is_empty() { None } else { Some(given) })
            }
        };
        let port = match given {
            Some(given) => {
                let number = given.strip_prefix(':').and_then(|number| number.parse().ok());
                number.filter(|number| *number > 0).ok_or_else(|| refused(NUMBER))?
            }
            None => port,
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl Servers {
    /// The first of the addresses.
    pub(super) fn first(&self) -> ServerAddress {
        let addresses = match self {
            Self::One(address) => slice::from_ref(address),
            Self::Cluster { seeds: list } | Self::Sentinel { sentinels: list, .. } => list,
        };
        let first = addresses.first().cloned();
        first.unwrap_or_else(|| unreachable!("an address names at least one server"))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[ServerAddress]| {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::One(address) => address.fmt(f),
            Self::Cluster { seeds } => f.write_str(&list(seeds)),
            Self::Sentinel { sentinels, service } => write!(f, "{}/{service}", list(sentinels)),
        }
    }
}

pub(super) fn refused(reason: &'static str) -> ConfigError {
    ConfigError::Url { reason }
}

const HOST: &str = "a host must be a name, an IPv4 address, or an IPv6 address in brackets";
const NUMBER: &str = "a port must be a number from 1 to 65535";
