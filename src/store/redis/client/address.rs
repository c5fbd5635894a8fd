//! Addresses of servers.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use crate::config_error::ConfigError;

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
        match self {
            Self::One(address) => address.fmt(f),
            Self::Sentinel { sentinels, service } => {
                let sentinels: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
                write!(f, "{}/{service}", sentinels.join(","))
            }
        }
    }
}

pub(super) fn refused(reason: &'static str) -> ConfigError {
    ConfigError::Url { reason }
}

const HOST: &str = "a host must be a name, an IPv4 address, or an IPv6 address in brackets";
const NUMBER: &str = "a port must be a number from 1 to 65535";
