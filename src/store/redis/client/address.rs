//! Addresses: what a URL says about the servers and how to connect to them.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use super::credentials::RedisCredentials;
use crate::config_error::ConfigError;

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// A parsed URL.
#[derive(Clone)]
pub(super) struct RedisUrl {
    /// The server, or the first seed of a cluster.
    pub(super) address: ServerAddress,
    /// All seeds of a cluster.
    pub(super) cluster: Option<Vec<ServerAddress>>,
    pub(super) login: UrlLogin,
    pub(super) database: u32,
    #[cfg(feature = "tls")]
    pub(super) is_encrypted: bool,
}

/// The user and the password of a URL.
#[derive(Clone, Default, PartialEq)]
pub(super) struct UrlLogin {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl UrlLogin {
    /// The credentials. A user without a password cannot authenticate.
    pub(super) fn credentials(self) -> Option<RedisCredentials> {
        Some(RedisCredentials::of_user(self.user, self.password?))
    }
}

/// The parts of a URL that may name several servers: `scheme://user:password@host:port,host/path`.
pub(super) struct UrlParts<'a> {
    pub(super) scheme: &'a str,
    pub(super) login: UrlLogin,
    /// The text between the user and the path.
    hosts: &'a str,
    /// The decoded path with its first slash, or an empty text.
    pub(super) path: String,
    /// The decoded parameters.
    pub(super) query: Vec<(String, String)>,
}

impl RedisUrl {
    /// # Errors
    /// If it is not the address of a server. The message repeats no part of it, because any part
    /// may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, ConfigError> {
        let parts = UrlParts::parse(url)?;
        match parts.scheme {
            "redis" | "valkey" => Self::of_host(parts),
            "redis-cluster" | "valkey-cluster" => Self::of_cluster(parts),
            #[cfg(feature = "tls")]
            "rediss" | "valkeys" => Ok(Self { is_encrypted: true, ..Self::of_host(parts)? }),
            #[cfg(feature = "tls")]
            "rediss-cluster" | "valkeys-cluster" => {
                Ok(Self { is_encrypted: true, ..Self::of_cluster(parts)? })
            }
            #[cfg(not(feature = "tls"))]
            "rediss" | "valkeys" | "rediss-cluster" | "valkeys-cluster" => Err(refused(NO_TLS)),
            "unix" | "redis+unix" | "valkey+unix" => Self::of_socket(parts),
            _ => Err(refused(ADDRESS)),
        }
    }

    fn of_host(parts: UrlParts<'_>) -> Result<Self, ConfigError> {
        let mut addresses = parts.addresses(PORT)?;
        let (Some(address), None) = (addresses.pop(), addresses.pop()) else {
            return Err(refused("only one server can be given with this scheme"));
        };
        if !parts.query.is_empty() {
            return Err(refused("it has a parameter (`?...`) that is not known"));
        }
        let database = database(parts.path.trim_matches('/'))?;
        Ok(Self::plain(address, parts.login, database))
    }

    fn of_cluster(parts: UrlParts<'_>) -> Result<Self, ConfigError> {
        let seeds = parts.addresses(PORT)?;
        let first = seeds.first().cloned().ok_or_else(|| refused(HOST))?;
        if !parts.query.is_empty() {
            return Err(refused("it has a parameter (`?...`) that is not known"));
        }
        if database(parts.path.trim_matches('/'))? > 0 {
            return Err(refused("a cluster has only database 0"));
        }
        Ok(Self { cluster: Some(seeds), ..Self::plain(first, parts.login, 0) })
    }

    fn of_socket(parts: UrlParts<'_>) -> Result<Self, ConfigError> {
        if !parts.hosts.is_empty() || parts.path.len() < 2 {
            return Err(refused(ADDRESS));
        }
        let mut login = UrlLogin::default();
        let mut number = 0;
        for (name, value) in parts.query {
            match &*name {
                "db" => number = database(&value)?,
                "user" => login.user = Some(value),
                "pass" => login.password = Some(value),
                _ => return Err(refused("it has a parameter that is not `db`, `user` or `pass`")),
            }
        }
        let address = ServerAddress::Unix(parts.path.into());
        Ok(Self::plain(address, login, number))
    }

    fn plain(address: ServerAddress, login: UrlLogin, database: u32) -> Self {
        Self {
            address,
            cluster: None,
            login,
            database,
            #[cfg(feature = "tls")]
            is_encrypted: false,
        }
    }
}

impl<'a> UrlParts<'a> {
    pub(super) fn parse(url: &'a str) -> Result<Self, ConfigError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refused(ADDRESS))?;
        if rest.contains('#') {
            return Err(refused(FRAGMENT));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        Ok(Self {
            scheme,
            login: UrlLogin::parse(login)?,
            hosts,
            path: decoded(path)?,
            query: parameters(query)?,
        })
    }

    /// The addresses of the servers, with the port of those that give none.
    pub(super) fn addresses(&self, port: u16) -> Result<Vec<ServerAddress>, ConfigError> {
        self.hosts.split(',').map(|host| address(host, port)).collect()
    }
}

impl UrlLogin {
    fn parse(login: &str) -> Result<Self, ConfigError> {
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        Ok(Self { user, password })
    }
}

fn address(text: &str, port: u16) -> Result<ServerAddress, ConfigError> {
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
    Ok(ServerAddress::Tcp { host: host.to_owned(), port })
}

/// The number of a database. None is database 0.
pub(super) fn database(text: &str) -> Result<u32, ConfigError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| refused("the database must be a number"))
}

fn parameters(query: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decoded(name)?, decoded(value)?))
    };
    pairs.map(decoded).collect()
}

/// A text without its percent encoding.
fn decoded(text: &str) -> Result<String, ConfigError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.first_chunk::<2>().and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| refused(ENCODING))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| refused(ENCODING))
}

pub(super) fn refused(reason: &'static str) -> ConfigError {
    ConfigError::Url { reason }
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

const PORT: u16 = 6379;
const ADDRESS: &str = "it must be redis://[user:password@]host[:port][/database], rediss:// for TLS, or \
     unix:///path[?db=database]";
#[cfg(not(feature = "tls"))]
const NO_TLS: &str = "`rediss://` needs the feature `tls` of the crate";
const FRAGMENT: &str = "it has a fragment (`#...`), and there is none: write `#` in a password as `%23`, and see \
     `RedisTls` for options of TLS";
const HOST: &str = "a host must be a name, an IPv4 address, or an IPv6 address in brackets";
const NUMBER: &str = "a port must be a number from 1 to 65535";
const ENCODING: &str = "its percent encoding is invalid: write `%` as `%25`";

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_part_of_an_address_is_read() {
        let url = RedisUrl::parse("redis://us%65r:p%40ss:w%2Frd@example.org:6380/3").unwrap();
        assert_eq!(url.address, tcp("example.org", 6380));
        assert_eq!(url.login.user.as_deref(), Some("user"));
        assert_eq!(url.login.password.as_deref(), Some("p@ss:w/rd"));
        assert_eq!(url.database, 3);
    }

    #[test]
    fn parts_that_are_not_given_have_their_defaults() {
        for url in ["redis://h", "redis://h/", "valkey://h", "redis://@h"] {
            let url = RedisUrl::parse(url).unwrap();
            assert_eq!(url.address, tcp("h", 6379));
            assert!(url.login == UrlLogin::default() && url.database == 0);
        }
        let url = RedisUrl::parse("redis://:secret@h").unwrap();
        assert_eq!(url.login.user, None);
        assert_eq!(url.login.password.as_deref(), Some("secret"));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn an_address_of_tls_names_the_feature_that_is_missing() {
        for url in ["rediss://h", "valkeys://h"] {
            let error = RedisUrl::parse(url).err().expect("there is no TLS");
            assert!(error.to_string().contains("feature `tls`"), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn the_scheme_says_whether_a_connection_is_encrypted() {
        for (url, is_encrypted) in [
            ("redis://h", false),
            ("valkey://h", false),
            ("rediss://h", true),
            ("valkeys://h", true),
        ] {
            assert_eq!(RedisUrl::parse(url).unwrap().is_encrypted, is_encrypted, "{url}");
        }
    }

    #[test]
    fn a_socket_has_its_parts_in_the_query() {
        let url = RedisUrl::parse("unix:///run/re%20dis.sock?db=2&user=u&pass=p%26w").unwrap();
        assert_eq!(url.address, ServerAddress::Unix("/run/re dis.sock".into()));
        assert_eq!(url.login.user.as_deref(), Some("u"));
        assert_eq!(url.login.password.as_deref(), Some("p&w"));
        assert_eq!(url.database, 2);
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["example.org:1", "10.0.0.7:6379", "[::1]:6380"] {
            let url = RedisUrl::parse(&format!("redis://{text}")).unwrap();
            assert_eq!(url.address.to_string(), text);
        }
    }

    #[test]
    fn several_hosts_have_a_port_each() {
        let parts = UrlParts::parse("x://u:p@a,b:2,[::1]/name").unwrap();
        assert_eq!(parts.addresses(9).unwrap(), [tcp("a", 9), tcp("b", 2), tcp("::1", 9)]);
        assert_eq!(parts.path, "/name");
    }

    #[test]
    fn a_malformed_address_is_refused_without_repeating_it() {
        for url in [
            "",
            "localhost",
            "http://secret",
            "redis://",
            "redis://secret/x",
            "redis://secret/-1",
            "redis://:secret@:6379",
            "redis://h:0",
            "redis://:secret@h:99999/",
            "redis://secret,h",
            "redis://a b",
            "redis://[secret]",
            "redis://:secret%@h",
            "redis://:secret%+1@h",
            "redis://:secret%ff@h",
            "redis://:sec#ret@h",
            "redis://h?secret=1",
            "unix://secret/path",
            "unix:///",
            "unix:///path?db=secret",
        ] {
            let error = RedisUrl::parse(url).err().unwrap_or_else(|| panic!("{url} is accepted"));
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
