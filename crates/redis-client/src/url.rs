//! URLs: what they say about the servers and how to connect to them.

use std::collections::BTreeMap;

use super::address::{ServerAddress, Servers, ServersKind, refused};
use super::credentials::RedisCredentials;
use bellwether::ConfigError;

/// A parsed URL.
#[derive(Clone)]
pub(super) struct RedisUrl {
    pub(super) servers: Servers,
    pub(super) login: Option<RedisCredentials>,
    /// For the sentinels.
    pub(super) sentinel_login: Option<RedisCredentials>,
    pub(super) database: u32,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "it is always false"))]
    pub(super) is_encrypted: bool,
}

impl RedisUrl {
    /// Reads `scheme://user:password@host:port,host/path?name=value`.
    ///
    /// # Errors
    /// If it is not the address of servers. The message repeats no part of it, because any part may
    /// hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, ConfigError> {
        let (scheme, rest) = without_stray_letters(url)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut login = login_of(login)?;
        let (path, mut query) = (path_of(path, hosts)?, parameters(query)?);
        let mut take = |name: &str| query.remove(name);
        let (kind, is_encrypted) = kind(scheme)?;
        let mut sentinel_login = None;
        let addresses =
            |port| hosts.split(',').map(|host| ServerAddress::parse(host, port)).collect();
        let (addresses, kind, number): (Result<Vec<_>, _>, _, _) = match kind {
            "" => (addresses(PORT), ServersKind::Single, path.trim_matches('/').to_owned()),
            "-cluster" => {
                (addresses(PORT), ServersKind::Cluster, path.trim_matches('/').to_owned())
            }
            "+sentinel" => {
                let path = path.get(1..).unwrap_or_default();
                let (service, number) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() {
                    return Err(refused(SENTINEL));
                }
                sentinel_login = credentials(take("sentinel_user"), take("sentinel_password"))?;
                let kind = ServersKind::Sentinel { service: service.to_owned() };
                (addresses(SENTINEL_PORT), kind, number.to_owned())
            }
            // A path is shown. One with a password lacks its `?`.
            "+unix" if hosts.is_empty() && path.len() > 1 && !path.contains("pass=") => {
                login = credentials(take("user"), take("pass"))?;
                let socket = vec![ServerAddress::Unix(path.into())];
                (Ok(socket), ServersKind::Single, take("db").unwrap_or_default())
            }
            _ => return Err(refused(ADDRESS)),
        };
        let servers = Servers { addresses: addresses?, kind };
        if servers.kind == ServersKind::Single && servers.addresses.len() > 1 {
            return Err(refused("only one server can be given with this scheme"));
        }
        if !query.is_empty() {
            return Err(refused(PARAMETER));
        }
        let database = database_of(&number)?;
        if database > 0 && servers.kind == ServersKind::Cluster {
            return Err(refused("a cluster has only database 0"));
        }
        Ok(Self { servers, login, sentinel_login, database, is_encrypted })
    }
}

/// The scheme, and what follows it.
fn without_stray_letters(url: &str) -> Result<(&str, &str), ConfigError> {
    if url.contains(char::is_control) {
        return Err(refused(LINE));
    }
    let (scheme, rest) = url.split_once("://").ok_or_else(|| refused(ADDRESS))?;
    if rest.contains('#') { Err(refused(FRAGMENT)) } else { Ok((scheme, rest)) }
}

/// What a scheme says about the servers, and whether connections are encrypted.
fn kind(scheme: &str) -> Result<(&str, bool), ConfigError> {
    let (product, kind) = scheme.split_at(scheme.find(['-', '+']).unwrap_or(scheme.len()));
    match product {
        "unix" if kind.is_empty() => Ok(("+unix", false)),
        "redis" | "valkey" => Ok((kind, false)),
        "rediss" | "valkeys" if kind == "+unix" => Err(refused(ADDRESS)),
        "rediss" | "valkeys" if !cfg!(feature = "tls") => Err(refused(NO_TLS)),
        "rediss" | "valkeys" => Ok((kind, true)),
        _ => Err(refused(ADDRESS)),
    }
}

fn database_of(number: &str) -> Result<u32, ConfigError> {
    let number = if number.is_empty() { "0" } else { number };
    let parsed = number.parse().ok().filter(|_| !number.starts_with('+'));
    parsed.ok_or_else(|| refused("the database must be a number"))
}

fn login_of(text: &str) -> Result<Option<RedisCredentials>, ConfigError> {
    let (user, password) = text.split_once(':').map_or((text, None), |(u, p)| (u, Some(p)));
    credentials(Some(decoded(user)?), password.map(decoded).transpose()?)
}

/// A user without a password cannot authenticate, and another one must not be taken.
fn credentials(
    user: Option<String>,
    password: Option<String>,
) -> Result<Option<RedisCredentials>, ConfigError> {
    match (user.filter(|user| !user.is_empty()), password) {
        (Some(_), None) => Err(refused(NO_PASSWORD)),
        (user, password) => {
            Ok(password.map(|password| RedisCredentials { user, password, renew_after: None }))
        }
    }
}

/// A path behind hosts has no `@`: a `/` in a password may have cut it off, and a service is shown.
fn path_of(path: &str, hosts: &str) -> Result<String, ConfigError> {
    match path.contains('@') && !hosts.is_empty() {
        true => Err(refused(SLASH)),
        false => decoded(path),
    }
}

fn parameters(query: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let decoded = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decoded(name)?, decoded(value)?))
    };
    pairs.map(decoded).collect()
}

/// A text without its percent encoding.
fn decoded(text: &str) -> Result<String, ConfigError> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| !digits.starts_with('+'));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| refused(ENCODING))?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| refused(ENCODING))
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const SENTINEL: &str =
    "it must be redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]";
const PARAMETER: &str = "it has a parameter (`?...`) that is not known for this scheme";
const ADDRESS: &str = "it must be redis://[user:password@]host[:port][/database], redis-cluster://host[:port][,...], \
     redis+sentinel://host[:port][,...]/service, rediss in place of redis for TLS, or unix:///path[?db=database]";
const NO_PASSWORD: &str =
    "it has a user and no password: write `user:password@`, or `:password@` for the default user";
const LINE: &str =
    "it has a line break, as at the end of a file with a secret, or another control character";
const NO_TLS: &str = "`rediss://` needs the feature `tls` of the crate";
const FRAGMENT: &str = "it has a fragment (`#...`), and there is none: write `#` in a password as `%23`, and see \
     `RedisTls` for options of TLS";
const SLASH: &str = "it has an `@` behind the first `/`: write `/` in a password as `%2F`, and `@` in a path as `%40`";
const ENCODING: &str = "its percent encoding is invalid: write `%` as `%25`";

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: host.to_owned(), port }
    }

    fn one(address: ServerAddress) -> Servers {
        Servers { addresses: vec![address], kind: ServersKind::Single }
    }

    /// The user and the password.
    fn login(credentials: Option<RedisCredentials>) -> Option<(Option<String>, String)> {
        credentials.map(|login| (login.user, login.password))
    }

    #[test]
    fn every_part_of_an_address_is_read() {
        let url = RedisUrl::parse("redis://us%65r:p%40ss:w%2Frd@example.org:6380/3").unwrap();
        assert_eq!(url.servers, one(tcp("example.org", 6380)));
        assert_eq!(login(url.login), Some((Some("user".to_owned()), "p@ss:w/rd".to_owned())));
        assert_eq!(url.database, 3);
    }

    #[test]
    fn parts_that_are_not_given_have_their_defaults() {
        for url in ["redis://h", "redis://h/", "valkey://h", "redis://@h"] {
            let url = RedisUrl::parse(url).unwrap();
            assert_eq!(url.servers, one(tcp("h", 6379)));
            assert!(url.login.is_none() && url.database == 0);
        }
        let url = RedisUrl::parse("redis://:secret@h").unwrap();
        assert_eq!(login(url.login), Some((None, "secret".to_owned())));
    }

    #[test]
    fn an_address_names_the_feature_that_it_needs() {
        for (url, feature, is_there) in [
            ("rediss://h", "tls", cfg!(feature = "tls")),
            ("valkeys://h", "tls", cfg!(feature = "tls")),
        ] {
            let error = RedisUrl::parse(url).err().map(|error| error.to_string());
            assert_eq!(error.is_none(), is_there, "{url}: {error:?}");
            let named = error.is_none_or(|error| error.contains(&format!("feature `{feature}`")));
            assert!(named, "{url}");
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
        assert_eq!(url.servers, one(ServerAddress::Unix("/run/re dis.sock".into())));
        assert_eq!(login(url.login), Some((Some("u".to_owned()), "p&w".to_owned())));
        assert_eq!(url.database, 2);
    }

    #[test]
    fn a_password_in_the_path_of_a_socket_is_refused_and_not_shown() {
        let refused = RedisUrl::parse("unix:///run/redis.sock&pass=hunter2").err();
        let refused = refused.map(|error| format!("{error} {error:?}")).unwrap_or_default();
        assert!(refused.contains("unix:///path[?db=") && !refused.contains("hunter2"), "{refused}");
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
        assert_eq!(login(url.login), Some((Some("u".to_owned()), "p".to_owned())));
        let sentinel_login = Some((Some("s".to_owned()), "t&".to_owned()));
        assert_eq!(login(url.sentinel_login), sentinel_login);
        assert_eq!(url.database, 3);
        let url = RedisUrl::parse("valkey+sentinel://:p@a/shop").unwrap();
        assert!(url.sentinel_login.is_none() && url.database == 0);
    }

    #[test]
    fn several_hosts_have_a_port_each() {
        let url = RedisUrl::parse("redis-cluster://u:p@a,b:2,[::1]/0").unwrap();
        let addresses = vec![tcp("a", 6379), tcp("b", 2), tcp("::1", 6379)];
        assert_eq!(url.servers, Servers { addresses, kind: ServersKind::Cluster });
    }

    #[test]
    fn a_refused_address_says_what_to_write() {
        let cases = [
            ("redis-sentinel://h/shop", "redis+sentinel://host"),
            ("redis://cache@h", "user:password@"),
            ("redis+sentinel://h/shop?sentinel_user=cache", "user:password@"),
            ("unix:///run/redis.sock?user=cache", "user:password@"),
            ("redis://:secret@h:6379\n", "line break"),
            ("redis://:sec\nret@h", "line break"),
        ];
        for (url, remedy) in cases {
            let error = RedisUrl::parse(url).err().unwrap_or_else(|| panic!("{url} is accepted"));
            let said = error.to_string();
            assert!(said.contains(remedy), "{url}: {said}");
        }
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
            "redis://h:+1",
            "redis://h/+1",
            "redis://u:1/secret@h",
            "redis+sentinel://u:1/secret@h",
            "redis+sentinel://u:p@h/secret@h",
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
            "rediss+unix:///secret",
            "redis-cluster://secret/1",
            "redis+secret://h",
        ] {
            let error = RedisUrl::parse(url).err().unwrap_or_else(|| panic!("{url} is accepted"));
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
