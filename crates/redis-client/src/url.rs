//! URLs: what they say about the servers and how to connect to them.

use super::address::{ServerAddress, Servers, refused};
use super::credentials::RedisCredentials;
use bellwether::ConfigError;

/// A parsed URL.
#[derive(Clone)]
pub(super) struct RedisUrl {
    pub(super) servers: Servers,
    pub(super) login: UrlLogin,
    /// For the sentinels.
    pub(super) sentinel_login: UrlLogin,
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
            "redis+sentinel" | "valkey+sentinel" => Self::of_sentinels(parts),
            #[cfg(feature = "tls")]
            "rediss" | "valkeys" => Ok(Self { is_encrypted: true, ..Self::of_host(parts)? }),
            #[cfg(feature = "tls")]
            "rediss-cluster" | "valkeys-cluster" => {
                Ok(Self { is_encrypted: true, ..Self::of_cluster(parts)? })
            }
            #[cfg(feature = "tls")]
            "rediss+sentinel" | "valkeys+sentinel" => {
                Ok(Self { is_encrypted: true, ..Self::of_sentinels(parts)? })
            }
            #[cfg(not(feature = "tls"))]
            "rediss" | "valkeys" | "rediss-cluster" | "valkeys-cluster" | "rediss+sentinel"
            | "valkeys+sentinel" => Err(refused(NO_TLS)),
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
        Ok(Self::plain(Servers::One(address), parts.login, database))
    }

    fn of_cluster(parts: UrlParts<'_>) -> Result<Self, ConfigError> {
        let seeds = parts.addresses(PORT)?;
        if !parts.query.is_empty() {
            return Err(refused("it has a parameter (`?...`) that is not known"));
        }
        if database(parts.path.trim_matches('/'))? > 0 {
            return Err(refused("a cluster has only database 0"));
        }
        Ok(Self::plain(Servers::Cluster { seeds }, parts.login, 0))
    }

    fn of_sentinels(parts: UrlParts<'_>) -> Result<Self, ConfigError> {
        let sentinels = parts.addresses(SENTINEL_PORT)?;
        let mut path = parts.path.strip_prefix('/').unwrap_or_default().split('/');
        let service = path.next().unwrap_or_default().to_owned();
        let database = database(path.next().unwrap_or_default())?;
        if service.is_empty() || path.next().is_some() {
            return Err(refused(SENTINEL));
        }
        let mut sentinel_login = UrlLogin::default();
        for (name, value) in parts.query {
            match &*name {
                "sentinel_user" => sentinel_login.user = Some(value),
                "sentinel_password" => sentinel_login.password = Some(value),
                _ => return Err(refused(SENTINEL_PARAMETER)),
            }
        }
        let servers = Servers::Sentinel { sentinels, service };
        Ok(Self { sentinel_login, ..Self::plain(servers, parts.login, database) })
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
        Ok(Self::plain(Servers::One(address), login, number))
    }

    fn plain(servers: Servers, login: UrlLogin, database: u32) -> Self {
        Self {
            servers,
            login,
            sentinel_login: UrlLogin::default(),
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
        self.hosts.split(',').map(|host| ServerAddress::parse(host, port)).collect()
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

/// The number of a database. None is database 0.
fn database(text: &str) -> Result<u32, ConfigError> {
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

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const SENTINEL: &str =
    "it must be redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]";
const SENTINEL_PARAMETER: &str =
    "it has a parameter that is neither `sentinel_user` nor `sentinel_password`";
const ADDRESS: &str = "it must be redis://[user:password@]host[:port][/database], rediss:// for TLS, or \
     unix:///path[?db=database]";
#[cfg(not(feature = "tls"))]
const NO_TLS: &str = "`rediss://` needs the feature `tls` of the crate";
const FRAGMENT: &str = "it has a fragment (`#...`), and there is none: write `#` in a password as `%23`, and see \
     `RedisTls` for options of TLS";
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
        assert_eq!(url.servers, Servers::One(tcp("example.org", 6380)));
        assert_eq!(url.login.user.as_deref(), Some("user"));
        assert_eq!(url.login.password.as_deref(), Some("p@ss:w/rd"));
        assert_eq!(url.database, 3);
    }

    #[test]
    fn parts_that_are_not_given_have_their_defaults() {
        for url in ["redis://h", "redis://h/", "valkey://h", "redis://@h"] {
            let url = RedisUrl::parse(url).unwrap();
            assert_eq!(url.servers, Servers::One(tcp("h", 6379)));
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
        assert_eq!(url.servers, Servers::One(ServerAddress::Unix("/run/re dis.sock".into())));
        assert_eq!(url.login.user.as_deref(), Some("u"));
        assert_eq!(url.login.password.as_deref(), Some("p&w"));
        assert_eq!(url.database, 2);
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["example.org:1", "10.0.0.7:6379", "[::1]:6380"] {
            let url = RedisUrl::parse(&format!("redis://{text}")).unwrap();
            assert_eq!(url.servers.to_string(), text);
        }
    }

    #[test]
    fn sentinels_have_a_service_and_credentials_of_their_own() {
        let url = "redis+sentinel://u:p@a,b:2,[::1]/shop/3?sentinel_user=s&sentinel_password=t%26";
        let url = RedisUrl::parse(url).unwrap();
        assert_eq!(url.servers.to_string(), "a:26379,b:2,[::1]:26379/shop");
        assert_eq!(url.login.password.as_deref(), Some("p"));
        assert_eq!(url.sentinel_login.user.as_deref(), Some("s"));
        assert_eq!(url.sentinel_login.password.as_deref(), Some("t&"));
        assert_eq!(url.database, 3);
        let url = RedisUrl::parse("valkey+sentinel://:p@a/shop").unwrap();
        assert!(url.sentinel_login == UrlLogin::default() && url.database == 0);
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
            "redis+sentinel://secret",
            "redis+sentinel:///secret",
            "redis+sentinel://secret,/shop",
            "redis+sentinel://secret/shop/x",
            "redis+sentinel://secret/shop/1/2",
            "redis+sentinel://h/shop?secret=1",
            "unix://secret/path",
            "unix:///",
            "unix:///path?db=secret",
        ] {
            let error = RedisUrl::parse(url).err().unwrap_or_else(|| panic!("{url} is accepted"));
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
