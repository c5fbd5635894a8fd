//! A primary, its replica, and the sentinels that watch them.

use super::redis::RedisServer;
use super::resp2::Reply;
use crate::wait::until;

/// The name of the service that the sentinels watch.
pub const SERVICE: &str = "ours";

/// A primary, its replica, and three sentinels that agree about both.
#[derive(Debug)]
pub struct SentinelFleet {
    /// The server that is the primary at first.
    pub primary: RedisServer,
    /// The server that is the replica at first.
    pub replica: RedisServer,
    /// The sentinels.
    pub sentinels: Vec<RedisServer>,
}

impl SentinelFleet {
    /// Starts them, and waits until all know of each other.
    pub async fn start() -> Self {
        let at_once = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
        let primary = RedisServer::start_with(&at_once);
        let port = primary.port().to_string();
        let follow = ["--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_with(&[&at_once[..], &follow].concat());
        until("the replica is linked", || {
            let status = replica.info("replication", "master_link_status");
            status.as_deref() == Some("up")
        })
        .await;
        let monitor = format!("sentinel monitor {SERVICE} 127.0.0.1 {port} 2");
        let lines = [
            "protected-mode no",
            &monitor,
            "sentinel down-after-milliseconds ours 500",
            "sentinel failover-timeout ours 2000",
            "sentinel parallel-syncs ours 1",
        ];
        let sentinels: Vec<_> = (0..3).map(|_| RedisServer::start_sentinel(&lines)).collect();
        let fleet = Self { primary, replica, sentinels };
        until("the sentinels know all", || fleet.sentinels.iter().all(knows_all)).await;
        fleet
    }

    /// The address of the primary by its sentinels.
    pub fn url(&self) -> String {
        let ports: Vec<_> = self.sentinels.iter().map(RedisServer::port).collect();
        url_of(&ports)
    }

    /// Begins a planned failover: the primary lives on.
    pub fn fail_over(&self) {
        self.sentinels[0].command(&["SENTINEL", "FAILOVER", SERVICE]);
    }

    /// Waits until one of the first two sentinels names the replica as the primary.
    pub async fn replica_is_named(&self) {
        let port = self.replica.port();
        let is_named = |sentinel| named_primary(sentinel) == Some(port);
        until("a sentinel names the replica", || self.sentinels[..2].iter().any(is_named)).await;
    }
}

/// The address of the service at sentinels with these ports.
pub fn url_of(ports: &[u16]) -> String {
    let sentinels: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{}/{SERVICE}", sentinels.join(","))
}

/// The port of the primary that a sentinel names. None while it is stopped or killed.
fn named_primary(sentinel: &RedisServer) -> Option<u16> {
    let reply = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
    let Reply::Array(mut address) = reply else { return None };
    address.pop()?.text().parse().ok()
}

fn knows_all(sentinel: &RedisServer) -> bool {
    let Reply::Array(fields) = sentinel.command(&["SENTINEL", "MASTER", SERVICE]) else {
        return false;
    };
    let fields: Vec<_> = fields.into_iter().map(Reply::text).collect();
    let field = |name| fields.iter().position(|field| field == name).map(|at| &*fields[at + 1]);
    field("num-slaves") == Some("1") && field("num-other-sentinels") == Some("2")
}
