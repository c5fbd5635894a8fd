//! Where a Redis is, and how it is talked to.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, IntoConnectionInfo, ProtocolVersion};

use super::breaker::BreakerRules;
use crate::config_error::{ConfigError, duration_within, namespace_of};

/// Where a Redis is, and how it is talked to.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether::RedisOptions;
///
/// let store = RedisOptions::new("redis://127.0.0.1:6379")?
///     .namespace("shop")?
///     .timeout(Duration::from_millis(100))?
///     .connect()
///     .await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisOptions {
    client: Client,
    namespace: String,
    timeout: Duration,
    connections: u32,
    tracking: bool,
    near: Option<usize>,
    near_ttl: Duration,
    down_after: u32,
    probe_every: Duration,
}

impl RedisOptions {
    /// Options for a `redis://` or `unix://` address.
    ///
    /// # Errors
    /// If it is none. The message repeats no part of it, as any may hold a password.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        // The client's own words may repeat a part of the address.
        let refused = |_| ConfigError::Url { reason: ADDRESS };
        let info = url.into_connection_info().map_err(refused)?;
        // Commands that share a connection would otherwise wait for each other's acknowledgement.
        // And who only waits to be told of changes would never learn that the other end is gone.
        let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = info.set_tcp_settings(tcp);
        let client = Client::open(info).map_err(refused)?;
        Ok(Self {
            client,
            namespace: "default".to_owned(),
            timeout: Duration::from_millis(250),
            connections: 2,
            tracking: true,
            near: None,
            near_ttl: Duration::from_secs(30),
            down_after: 5,
            probe_every: Duration::from_millis(250),
        })
    }

    /// Sets which keys of the server are ours: all of them begin with `bw:<namespace>:`. Services
    /// that share entries share a namespace.
    ///
    /// Default: `default`, so that one service needs no name.
    ///
    /// # Errors
    /// If it is not 1 to 64 of `A-Z a-z 0-9 _ . -`.
    pub fn namespace(self, namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self { namespace: namespace_of(namespace)?, ..self })
    }

    /// Sets how long one operation may take, connecting included.
    ///
    /// Default: 250 ms. A healthy Redis answers within one; a caller can bear a quarter of a
    /// second, once.
    ///
    /// # Errors
    /// If it is not from 1 ms to 60 s.
    pub fn timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60)];
        let timeout = duration_within("timeout of the store", timeout, least, most)?;
        Ok(Self { timeout, ..self })
    }

    /// Sets how many connections are kept. One of them is for leases and hears of changes; plain
    /// hits share the others. No request keeps one to itself.
    ///
    /// Default: 2. One connection carries hundreds of thousands of commands a second.
    ///
    /// # Errors
    /// If it is not from 2 to 64.
    pub fn connections(self, connections: u32) -> Result<Self, ConfigError> {
        if !(2..=64).contains(&connections) {
            let (setting, given) = ("connections of the store", connections as usize);
            return Err(ConfigError::Number { setting, given, least: 2, most: 64 });
        }
        Ok(Self { connections, ..self })
    }

    /// Sets after how many failures in a row the server is taken to be down. Operations fail at once
    /// then, with [`StoreErrorKind::Down`](crate::StoreErrorKind::Down) and without asking it, but
    /// for [one probe at a time](Self::probe_every).
    ///
    /// What counts as a failure is no answer in time, no connection, and the answer of a server that
    /// is not ready (`LOADING`, `BUSY`, `MASTERDOWN`...). To be refused is to be answered: a full
    /// server still serves hits.
    ///
    /// Default: 5. One lost connection fails a few operations, a dead server all of them.
    ///
    /// # Errors
    /// If it is not from 1 to 1,000,000.
    pub fn down_after(self, failures: u32) -> Result<Self, ConfigError> {
        if !(1..=1_000_000).contains(&failures) {
            let (setting, given) = ("failures until the store is down", failures as usize);
            return Err(ConfigError::Number { setting, given, least: 1, most: 1_000_000 });
        }
        Ok(Self { down_after: failures, ..self })
    }

    /// Sets how often a server that is taken to be down is asked by one operation, which is let
    /// through to find out. If that gets an answer, all are let through again.
    ///
    /// Every store has its own interval, up to a fifth shorter or longer than this, so that the
    /// processes of a fleet do not ask in step. The pauses between attempts to connect stay below
    /// half of it.
    ///
    /// Default: 250 ms, so that a server that is back is in use within a second. One command per
    /// process in that time is nothing to a server, even with a fleet of hundreds.
    ///
    /// # Errors
    /// If it is not from 100 ms to 60 s.
    pub fn probe_every(self, interval: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(60)];
        let probe_every = duration_within("probe interval of the store", interval, least, most)?;
        Ok(Self { probe_every, ..self })
    }

    /// Talks RESP2, for servers and proxies that refuse more. Nothing is heard of changes then,
    /// and losers find the value by their pauses alone.
    ///
    /// A server that refuses RESP3 or `CLIENT TRACKING` is noticed without this; it saves the
    /// refused command on every connect.
    #[must_use]
    pub fn resp2(self) -> Self {
        Self { tracking: false, ..self }
    }

    /// Keeps copies of what is read in this process, in so many bytes, so that a hit on one sends no
    /// command. The server tells when an entry changes, and its copy is dropped.
    ///
    /// An invalidation by this process holds in it as soon as it has returned; one by another
    /// process holds here when the server's message has arrived, usually within a millisecond. When
    /// the connection breaks that brings these messages, all copies are dropped. Where the server
    /// tells of nothing ([`resp2`](Self::resp2)), nothing is copied.
    ///
    /// A connection can die without a word. So a copy is given out only if the connection was heard
    /// from within one second and the [`timeout`](Self::timeout), 1.25 s by default; otherwise the
    /// server is asked first. So no copy is given out for longer than that after its invalidation has
    /// returned, whether it is read all the time, was not read for hours, or its process was stopped.
    /// While copies are read the server is sent a `PING` every half second; while none is, nothing
    /// is sent, and the first read costs a look. Time is counted by the system's monotonic clock. On
    /// Linux and macOS that clock stands still while the machine is suspended, so the bound is one of
    /// time awake.
    ///
    /// A copy counts its key, its encoded value twice, the second time for the decoded copy that is
    /// kept beside it so that a hit decodes nothing, and 512 bytes for the tables. What is read often
    /// stays. All looks go over the one connection that hears of changes.
    ///
    /// Default: off. A copy is a hundred times faster than a look, and is one more thing that takes
    /// memory on both sides and can lag behind.
    ///
    /// # Errors
    /// If it is not from 64 KiB to 1 TiB.
    pub fn near(self, bytes: usize) -> Result<Self, ConfigError> {
        if !(LEAST_NEAR..=MOST_NEAR).contains(&bytes) {
            let (setting, given) = ("bytes of the near tier", bytes);
            return Err(ConfigError::Number { setting, given, least: LEAST_NEAR, most: MOST_NEAR });
        }
        Ok(Self { near: Some(bytes), ..self })
    }

    /// Sets for how long a copy in the [`near`](Self::near) tier may be given out before the server
    /// is asked again, whatever it has told. A copy never outlives its entry.
    ///
    /// Default: 30 s. It bounds how old an answer can be if all else fails, and at one question per
    /// key in half a minute it costs next to nothing.
    ///
    /// # Errors
    /// If it is not from 1 ms to one hour.
    pub fn near_ttl(self, ttl: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60 * 60)];
        let near_ttl = duration_within("ttl of the near tier", ttl, least, most)?;
        Ok(Self { near_ttl, ..self })
    }

    /// Where the server is, without user and password.
    pub fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn namespace_name(&self) -> &str {
        &self.namespace
    }

    /// How long a request may take.
    pub(in super::super) fn request_timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the server is asked to report changes.
    pub(super) fn is_tracked(&self) -> bool {
        self.tracking
    }

    /// How many connections carry plain hits. With a near tier none does.
    pub(in super::super) fn plain_connections(&self) -> u32 {
        if self.near.is_some() { 0 } else { self.connections - 1 }
    }

    /// In how many bytes copies are kept in this process, and how long one is given out at most.
    pub(in super::super) fn near_tier(&self) -> Option<(usize, Duration)> {
        Some((self.near?, self.near_ttl))
    }

    /// Only RESP3 reports changes.
    pub(super) fn protocol(&self) -> ProtocolVersion {
        if self.tracking { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 }
    }

    pub(super) fn longest_backoff(&self) -> Duration {
        self.probe_every / 2
    }

    /// What a breaker goes by, with a number from 0 to 1 for what is its own.
    pub(super) fn rules(&self, draw: f64) -> BreakerRules {
        let pause = self.probe_every.mul_f64(0.8 + 0.4 * draw);
        BreakerRules { after: self.down_after, pause, longest: self.timeout }
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("address", &self.address())
            .field("namespace", &self.namespace)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("tracking", &self.tracking)
            .field("near", &self.near)
            .field("near_ttl", &self.near_ttl)
            .field("down_after", &self.down_after)
            .field("probe_every", &self.probe_every)
            .finish()
    }
}

const LEAST_NEAR: usize = 64 * 1024;
const MOST_NEAR: usize = 1 << if usize::BITS > 40 { 40 } else { 31 };
/// After so long without a word the other end is asked whether it is still there, and then three
/// times as often. An operation never waits for this; its timeout is much shorter.
const SILENCE: Duration = Duration::from_secs(15);

const ADDRESS: &str =
    "it must be redis://[user:password@]host[:port][/database] or unix:///path[?db=database]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_kept_alive_and_send_at_once() {
        let options = RedisOptions::new("redis://localhost").unwrap();
        let tcp = options.client.get_connection_info().tcp_settings();
        assert!(tcp.keepalive().is_some() && tcp.nodelay());
    }

    #[test]
    fn stores_of_a_fleet_probe_at_intervals_of_their_own() {
        let options = RedisOptions::new("redis://localhost").unwrap();
        let pause = |draw| options.rules(draw).pause;
        assert_eq!(pause(0.0), Duration::from_millis(200));
        assert_eq!(pause(1.0), Duration::from_millis(300));
    }
}
