//! Addresses of servers.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use bellwether::ConfigError;

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Where the servers of a client are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Servers {
    /// The server, some nodes of a cluster, or sentinels. There is at least one.
    pub(super) addresses: Vec<ServerAddress>,
    pub(super) kind: ServersKind,
}

/// What the addresses lead to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServersKind {
    Single,
    Cluster,
    /// The primary of a service, as its sentinels name it.
    Sentinel {
        service: String,
    },
}

impl ServerAddress {
    /// A host, perhaps with a port.
    ///
    /// # Errors
    /// If it is not that. The message does not repeat it, because a password may be part of it.
    pub(super) fn parse(text: &str, port: u16) -> Result<Self, ConfigError> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, given)) if !given.ends_with(']') => {
                let port = given.parse().ok().filter(|port| *port > 0 && !given.starts_with('+'));
                (host, port.ok_or_else(|| refused(NUMBER))?)
            }
            _ => (text, port),
        };
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_host = match in_brackets {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(fits),
        };
        if !is_host {
            return Err(refused(HOST));
        }
        let host = in_brackets.unwrap_or(host);
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
        f.write_str(&list(&self.addresses))?;
        match &self.kind {
            ServersKind::Single | ServersKind::Cluster => Ok(()),
            ServersKind::Sentinel { service } => write!(f, "/{service}"),
        }
    }
}

/// The addresses, with a comma between them.
pub(super) fn list(addresses: &[ServerAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn refused(reason: &'static str) -> ConfigError {
    ConfigError::Url { reason }
}

const HOST: &str = "a host must be a name, an IPv4 address, or an IPv6 address in brackets";
const NUMBER: &str = "a port must be a number from 1 to 65535";
