//! How many commands the clients send to Redis, by the server's own count.
//!
//! The count is `INFO commandstats`, read before and after a burst. Unlike MONITOR it costs the
//! server nothing during the burst. It has two peculiarities:
//!
//! - It includes the commands that scripts run inside the server, as `total_commands_processed`
//!   does. No client sends them, so [`sent`] subtracts them.
//! - It includes the commands of all clients. If other programs use the Redis at the same time, the
//!   figure is too high.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{Client, IntoConnectionInfo};

use crate::Fault;
use crate::ways::Way;

/// Calls by command, since the start of the server.
pub(crate) type Calls = BTreeMap<String, u64>;

/// A connection for statistics only.
pub(crate) struct Meter {
    connection: MultiplexedConnection,
}

impl Meter {
    pub(crate) async fn open(url: &str) -> Result<Self, Fault> {
        let connection = Client::open(url)?.get_multiplexed_async_connection().await;
        Ok(Self {
            connection: connection
                .map_err(|fault| format!("cannot connect to the store: {fault}"))?,
        })
    }

    pub(crate) async fn calls(&mut self) -> Result<Calls, Fault> {
        Ok(parse(&self.info("commandstats").await?))
    }

    pub(crate) async fn version(&mut self) -> Result<String, Fault> {
        let info = self.info("server").await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("of unknown version").to_owned())
    }

    async fn info(&mut self, section: &str) -> Result<String, Fault> {
        let info = redis::cmd("INFO").arg(section).query_async(&mut self.connection).await;
        info.map_err(|fault| format!("cannot read the statistics of the store: {fault}").into())
    }
}

/// Only the host and port of a Redis URL.
pub(crate) fn address(url: &str) -> Result<String, String> {
    let info = url.into_connection_info().map_err(|fault| fault.to_string())?;
    Ok(info.addr().to_string())
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
        Way::Unprotected => 0,
        Way::Polling => calls("evalsha") + calls("eval") + calls("del"),
        Way::Bellwether => SCRIPTED.iter().map(|command| calls(command)).sum(),
    };
    let all: u64 = after.keys().map(|command| calls(command)).sum();
    all.saturating_sub(calls("info")).saturating_sub(inside)
}

/// What bellwether's scripts run inside the server, and its clients never send.
const SCRIPTED: [&str; 8] = ["del", "get", "getex", "pexpire", "pttl", "set", "setrange", "time"];

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
    fn the_count_of_the_server_is_read() {
        let info =
            "# Commandstats\r\ncmdstat_get:calls=3,usec=9\r\ncmdstat_client|id:calls=1,usec=1\r\n";
        assert_eq!(parse(info), calls(&[("get", 3), ("client|id", 1)]));
    }
}
