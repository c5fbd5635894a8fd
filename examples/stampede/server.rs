//! How many commands the clients send to Redis, by the server's own count.
//!
//! The count is `INFO commandstats`, read before and after a burst. Unlike MONITOR it costs the
//! server nothing during the burst. It has two peculiarities:
//!
//! - It includes the commands that scripts run inside the server, as `total_commands_processed`
//!   does. No client sends them, so [`sent`] subtracts them.
//! - It includes the commands of all clients. If other programs use the Redis at the same time, the
//!   figure is too high.
//!
//! In a cluster, the count is that of all primaries. Replicas count what their primaries send them.

use std::collections::BTreeMap;

use bellwether_redis::RedisOptions;
use redis::aio::MultiplexedConnection;
use redis::{Client, Value};

use crate::Fault;
use crate::ways::Way;

/// Calls by command, since the start of the server.
pub(crate) type Calls = BTreeMap<String, u64>;

/// Connections for statistics only: one to each server.
pub(crate) struct Meter {
    connections: Vec<MultiplexedConnection>,
}

impl Meter {
    pub(crate) async fn open(url: &str) -> Result<Self, Fault> {
        let mut connections = Vec::new();
        for url in urls_of_primaries(url).await? {
            connections.push(connect(&url).await?);
        }
        Ok(Self { connections })
    }

    pub(crate) async fn calls(&mut self) -> Result<Calls, Fault> {
        let mut all = Calls::new();
        for connection in &mut self.connections {
            for (command, calls) in parse(&info(connection, "commandstats").await?) {
                *all.entry(command).or_default() += calls;
            }
        }
        Ok(all)
    }

    pub(crate) async fn version(&mut self) -> Result<String, Fault> {
        let connection = self.connections.first_mut().ok_or("the cluster has no primaries")?;
        let info = info(connection, "server").await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("of unknown version").to_owned())
    }
}

async fn info(connection: &mut MultiplexedConnection, section: &str) -> Result<String, Fault> {
    let info = redis::cmd("INFO").arg(section).query_async(connection).await;
    info.map_err(|fault| format!("cannot read the statistics of the store: {fault}").into())
}

async fn connect(url: &str) -> Result<MultiplexedConnection, Fault> {
    let connection = Client::open(url)?.get_multiplexed_async_connection().await;
    connection.map_err(|fault| format!("cannot connect: {fault}").into())
}

/// The URL of the store without user, password and database.
pub(crate) fn shown(url: &str) -> Result<String, String> {
    let options = RedisOptions::new(url, "shop").map_err(|fault| fault.to_string())?;
    let scheme = url.split_once("://").map_or("redis", |(scheme, _)| scheme);
    Ok(format!("{scheme}://{}", options.address()))
}

/// The URLs of the primaries of a cluster, or that of the one server.
async fn urls_of_primaries(url: &str) -> Result<Vec<String>, Fault> {
    let Some((login, seeds)) = cluster(url) else { return Ok(vec![url.to_owned()]) };
    let mut last = Fault::from("a cluster without seeds");
    for seed in seeds {
        match primaries(&format!("redis://{login}{seed}")).await {
            Ok(primaries) => {
                let url = |address: &String| format!("redis://{login}{address}");
                return Ok(primaries.iter().map(url).collect());
            }
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

/// The URL of the server that owns the slot of a name.
pub(crate) async fn url_of_owner(url: &str, name: &str) -> Result<String, Fault> {
    for url in urls_of_primaries(url).await? {
        // Any other node of a cluster refuses the name.
        let mut connection = connect(&url).await?;
        if redis::cmd("EXISTS").arg(name).query_async::<Value>(&mut connection).await.is_ok() {
            return Ok(url);
        }
    }
    Err(format!("no node of the cluster owns the slot of {name}").into())
}

/// The user and password, if any, and the seeds of a cluster.
fn cluster(url: &str) -> Option<(&str, std::str::Split<'_, char>)> {
    let rest = url.strip_prefix("redis-cluster://")?;
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    let seeds = authority.rfind('@').map_or(0, |at| at + 1);
    Some((&authority[..seeds], authority[seeds..].split(',')))
}

/// The addresses of the primaries that own slots, as a node of a cluster knows them.
async fn primaries(url: &str) -> Result<Vec<String>, Fault> {
    let mut connection = connect(url).await?;
    let slots = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    let Value::Array(ranges) = slots else { return Err("no list of slots".into()) };
    let mut addresses: Vec<_> = ranges.iter().filter_map(primary).collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// The address of the first node of a range of slots.
fn primary(range: &Value) -> Option<String> {
    let Value::Array(range) = range else { return None };
    let [_, _, Value::Array(primary), ..] = &range[..] else { return None };
    let [Value::BulkString(host), Value::Int(port), ..] = &primary[..] else { return None };
    Some(format!("{}:{port}", str::from_utf8(host).ok()?))
}

/// Commands that clients sent between two counts.
///
/// That is every call except our own INFO and the calls of the way's scripts inside the server:
///
/// - polling: its script runs a GET, and a DEL if the caller still holds the lock. The clients also
///   send GET, but no DEL.
/// - bellwether: its scripts run only commands that its clients never send.
pub(crate) fn sent(way: Way, before: &Calls, after: &Calls) -> u64 {
    let calls = |command: &str| {
        let count = |calls: &Calls| calls.get(command).copied().unwrap_or(0);
        count(after).saturating_sub(count(before))
    };
    let inside = match way {
        Way::Unprotected | Way::Moka => 0,
        Way::Polling => calls("evalsha") + calls("eval") + calls("del"),
        Way::Bellwether => SCRIPTED.iter().map(|command| calls(command)).sum(),
    };
    let all: u64 = after.keys().map(|command| calls(command)).sum();
    all.saturating_sub(calls("info")).saturating_sub(inside)
}

/// What bellwether's scripts run inside the server, and its clients never send.
const SCRIPTED: [&str; 8] = ["del", "get", "pexpire", "pttl", "publish", "set", "setrange", "time"];

/// Lines like `cmdstat_get:calls=3,usec=9,...`.
fn parse(info: &str) -> Calls {
    let line = |line: &str| {
        let (command, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = figures.split(',').next()?.parse().ok()?;
        Some((command.to_owned(), calls))
    };
    info.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(of: &[(&str, u64)]) -> Calls {
        of.iter().map(|(command, calls)| ((*command).to_owned(), *calls)).collect()
    }

    #[test]
    fn what_a_script_runs_is_not_sent_by_a_client() {
        let before = calls(&[("get", 10), ("info", 1)]);
        let after = calls(&[("get", 15), ("set", 3), ("evalsha", 1), ("del", 1), ("info", 2)]);
        assert_eq!(sent(Way::Polling, &before, &after), 4 + 3 + 1);
        let (looks, scripts) = (5, 2);
        let after = [("mget", looks), ("evalsha", scripts), ("set", 2), ("del", 1)];
        assert_eq!(sent(Way::Bellwether, &before, &calls(&after)), looks + scripts);
    }

    #[test]
    fn the_seeds_of_a_cluster_are_apart_from_the_password() {
        let parts = |url| cluster(url).map(|(login, seeds)| (login, seeds.collect::<Vec<_>>()));
        assert_eq!(parts("redis-cluster://a,b:1"), Some(("", vec!["a", "b:1"])));
        assert_eq!(parts("redis-cluster://u:p@a:1/0"), Some(("u:p@", vec!["a:1"])));
        assert_eq!(parts("redis://a"), None);
    }

    #[test]
    fn the_count_of_the_server_is_read() {
        let info =
            "# Commandstats\r\ncmdstat_get:calls=3,usec=9\r\ncmdstat_client|id:calls=1,usec=1\r\n";
        assert_eq!(parse(info), calls(&[("get", 3), ("client|id", 1)]));
    }
}
