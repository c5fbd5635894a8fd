//! The options of a `ZooKeeperLock`.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::{FirstError, namespace_of, within};

/// The options of a connection to a ZooKeeper ensemble.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_lock::{ZooKeeperLock, ZooKeeperOptions};
///
/// let options = ZooKeeperOptions::new("zoo1:2181,zoo2:2181,zoo3:2181/apps", "shop")?
///     .session_timeout(Duration::from_secs(6))
///     .auth("digest", b"shop:secret")
///     .private();
/// let lock = ZooKeeperLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ZooKeeperOptions {
    pub(super) hosts: String,
    /// The path of the parent of all parents.
    pub(super) root: String,
    pub(super) session_timeout: Duration,
    pub(super) auth: Vec<(String, Vec<u8>)>,
    pub(super) timeout: Duration,
    /// Whether only processes with the same credentials can use the nodes.
    pub(super) private: bool,
    pub(super) wrong: FirstError,
}

impl ZooKeeperOptions {
    /// Options for the servers of one ensemble: `host[:port],host[:port]...`. A path after them is
    /// where our nodes are, instead of the root. It is created if it is missing. All nodes are below
    /// `/bellwether/<namespace>` there. Services share locks if they have the same namespace.
    ///
    /// There is no TLS: the client's own would bring a C compiler into every build.
    ///
    /// # Errors
    /// If it is not such a list, or the path is not valid. If the namespace is not 1 to 64 of
    /// `A-Z a-z 0-9 _ . -`, or if it is `.` or `..`.
    pub fn new(servers: &str, namespace: &str) -> Result<Self, ConfigError> {
        let (hosts, chroot) = servers.split_at(servers.find('/').unwrap_or(servers.len()));
        let chroot = chroot.trim_end_matches('/');
        if !hosts.split(',').all(is_host) || !chroot.split('/').skip(1).all(is_name) {
            return Err(ConfigError::Url { reason: SERVERS });
        }
        let namespace = namespace_of(namespace)?;
        // A path must not go up.
        if !is_name(&namespace) {
            return Err(ConfigError::Namespace { given: namespace });
        }
        Ok(Self {
            hosts: hosts.to_owned(),
            root: format!("{chroot}/bellwether/{namespace}"),
            session_timeout: Duration::from_secs(10),
            auth: Vec::new(),
            timeout: Duration::from_secs(2),
            private: false,
            wrong: FirstError::default(),
        })
    }

    /// Sets the session timeout: the servers end the session of a silent process after it, and
    /// release all that it holds. They limit it to between 2 and 20 of their ticks, which is 4 s to
    /// 40 s by default. [`connect`](super::ZooKeeperLock::connect) fails if it is not from 100 ms to
    /// one hour.
    ///
    /// Default: 10 s. The keys of a killed holder stay locked for that long. For three quarters of
    /// it, a process may stand still, or be without a connection, and loses nothing.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(60 * 60)];
        let timeout = within("session timeout of the lock", timeout, least, most);
        self.wrong.set(&mut self.session_timeout, timeout);
        self
    }

    /// Sets how long one operation may take, connecting included. Waiting for a holder is not
    /// counted. [`connect`](super::ZooKeeperLock::connect) fails if it is not from 1 ms to 60 s.
    ///
    /// Default: 2 s. A healthy ensemble answers within a few milliseconds; another one of its
    /// servers is found within a second.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60)];
        self.wrong.set(&mut self.timeout, within("timeout of the lock", timeout, least, most));
        self
    }

    /// Adds credentials for an authentication scheme of the servers, such as `digest` with
    /// `user:password`.
    ///
    /// Default: none.
    pub fn auth(mut self, scheme: &str, credentials: &[u8]) -> Self {
        self.auth.push((scheme.to_owned(), credentials.to_vec()));
        self
    }

    /// Makes the nodes private to processes with the same credentials ([`auth`](Self::auth)). All
    /// processes that share the locks must set it.
    ///
    /// Default: all clients of the ensemble can use them. Processes that share a lock need that,
    /// and most ensembles are protected by their network.
    pub fn private(self) -> Self {
        Self { private: true, ..self }
    }
}

// Shows the schemes, and no credentials.
bellwether::debug_fields! { ZooKeeperOptions => |it|
    hosts = it.hosts,
    root = it.root,
    session_timeout = it.session_timeout,
    auth = it.auth.iter().map(|(scheme, _)| scheme).collect::<Vec<_>>(),
    timeout = it.timeout,
    private = it.private
}

/// Whether it is a host, with or without a port.
fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, "2181"),
    };
    let is_bare = !name.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    let is_one = !name.contains(':') || name.starts_with('[') && name.ends_with(']');
    let has_port = !port.starts_with('+') && port.parse::<u16>().is_ok_and(|port| port > 0);
    !name.is_empty() && is_bare && is_one && has_port
}

/// Whether a node may have this name.
fn is_name(name: &str) -> bool {
    !["", ".", ".."].contains(&name) && !name.contains(char::is_control)
}

const SERVERS: &str = "it must be host[:port],host[:port]...[/path]; connections are not encrypted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_after_the_servers_is_where_all_nodes_are() {
        let options = ZooKeeperOptions::new("zoo1,[::1]:2182/apps/shop/", "stock").unwrap();
        assert_eq!(options.hosts, "zoo1,[::1]:2182");
        assert_eq!(options.root, "/apps/shop/bellwether/stock");
    }

    #[test]
    fn what_is_no_list_of_servers_is_refused() {
        let wrong =
            ["", ",", "zoo1,", ":2181", "zoo1:port", "zoo1:0", "zoo1:+1", "tcp://zoo1", "a:b:1"];
        for servers in wrong.into_iter().chain(["zoo1//apps", "zoo1/./apps", "zoo1/a\0b"]) {
            assert!(ZooKeeperOptions::new(servers, "shop").is_err(), "{servers:?}");
        }
    }

    #[test]
    fn servers_that_ask_for_tls_are_refused_by_name() {
        for servers in ["tcp+tls://zoo1:2281", "zoo1,ssl://zoo2", "ssl:zoo1:2281"] {
            let error = ZooKeeperOptions::new(servers, "shop").unwrap_err().to_string();
            assert!(error.contains("not encrypted"), "{error}");
        }
    }

    #[test]
    fn a_namespace_is_one_name() {
        for namespace in ["", ".", "..", "a/b", "ä", &"n".repeat(65)] {
            assert!(ZooKeeperOptions::new("zoo1", namespace).is_err(), "{namespace:?}");
        }
        assert!(ZooKeeperOptions::new("zoo1", "a..b").is_ok());
    }

    #[test]
    fn invalid_times_are_refused() {
        let options = || ZooKeeperOptions::new("zoo1", "shop").unwrap();
        for wrong in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            let refused = |options| crate::ZooKeeperLock::connect_lazily(options).is_err();
            assert!(refused(options().session_timeout(wrong)), "{wrong:?}");
            assert!(refused(options().timeout(wrong)), "{wrong:?}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let options = ZooKeeperOptions::new("zoo1", "shop").unwrap().auth("digest", b"shop:secret");
        let shown = format!("{options:?}");
        assert!(shown.contains("digest") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn fuzzed_servers_are_refused_or_kept_as_they_were_written() {
        bellwether_testkit::fuzz::fuzz("ZooKeeper servers", 64, 1, |choices| {
            let host = |choices: &mut bellwether_testkit::fuzz::Choices| {
                let port = 1 + choices.below(65_535);
                let host = choices.pick(&["zoo1", "10.0.0.7", "[::1]", "ä.internal"]);
                if choices.one_in(2) { format!("{host}:{port}") } else { host.to_owned() }
            };
            let hosts: Vec<_> = (0..=choices.below(3)).map(|_| host(choices)).collect();
            let path = choices.pick(&["", "/", "/apps", "/apps/ä b"]);
            let valid = format!("{}{path}", hosts.join(","));
            let is_changed = choices.one_in(2);
            let text = if is_changed { choices.mutated_text(&valid, "a:1,b/../c") } else { valid };
            let Ok(options) = ZooKeeperOptions::new(&text, "shop") else {
                assert!(is_changed, "{text}");
                return;
            };
            let root = options.root.strip_suffix("/bellwether/shop").expect("our root");
            assert_eq!(format!("{}{root}", options.hosts), text.trim_end_matches('/'));
            assert!(!root.split('/').any(|name| ["..", "."].contains(&name)), "{text}");
            let ports = options.hosts.split(',').filter_map(|host| host.rsplit_once(':'));
            let ports = ports.filter(|(_, port)| !port.ends_with(']'));
            assert!(
                ports
                    .map(|(_, port)| port.parse())
                    .all(|port| port.is_ok_and(|port: u16| port > 0))
            );
        });
    }
}
