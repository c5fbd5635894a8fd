//! Commands to each server.

use std::collections::HashMap;

use bellwether::StoreError;
use bellwether_redis_client::{RedisClient, RedisRequest, RedisValue};

use crate::CliError;

/// A server, or a node of a cluster that owns slots.
pub(crate) struct ServerNode<'a> {
    client: &'a RedisClient,
    slot: u16,
    pub(crate) address: String,
}

/// The nodes of a client that is connected.
pub(crate) fn nodes(client: &RedisClient) -> Vec<ServerNode<'_>> {
    let node = |(slot, address): (u16, Option<String>)| {
        let address = address.unwrap_or_else(|| client.options().address());
        ServerNode { client, slot, address }
    };
    client.nodes().into_iter().map(node).collect()
}

/// Gives the names that match a pattern to a function, until it wants no more. Returns whether these were all, and not
/// only some because so many are read at most.
pub(crate) async fn scan(
    client: &RedisClient,
    pattern: &str,
    most: u64,
    mut see: impl FnMut(&str) -> bool,
) -> Result<bool, CliError> {
    let mut read = 0;
    for node in nodes(client) {
        let mut cursor = "0".to_owned();
        loop {
            let args = [&cursor, "MATCH", pattern, "COUNT", AT_ONCE];
            let reply = node.run("SCAN", &args).await?;
            let [next, names] = list(&reply) else { return Err("SCAN: no such reply".into()) };
            if !list(names).iter().filter_map(text).all(&mut see) {
                return Ok(false);
            }
            cursor = text(next).unwrap_or_default().to_owned();
            read += 1_000;
            if cursor == "0" {
                break;
            }
            if read >= most {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// How many names one command reads, in about a millisecond.
const AT_ONCE: &str = "1000";

impl ServerNode<'_> {
    pub(crate) async fn run(
        &self,
        command: &'static str,
        args: &[&str],
    ) -> Result<RedisValue, StoreError> {
        let args: Vec<_> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        let request = RedisRequest::command(command, [], args, command);
        self.client.run(&request.in_slot(self.slot), Some).await
    }

    /// The fields of a section of `INFO`, or of `all` of them.
    pub(crate) async fn info(&self, section: &str) -> Result<HashMap<String, String>, StoreError> {
        let info = self.run("INFO", &[section]).await?;
        let info = text(&info).unwrap_or_default();
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(field, value)| (field.to_owned(), value.trim().to_owned())).collect())
    }

    /// A setting, if the user may read it.
    pub(crate) async fn config(&self, name: &str) -> Option<String> {
        let reply = self.run("CONFIG", &["GET", name]).await.ok()?;
        let RedisValue::Map(settings) = &reply else {
            return text(list(&reply).get(1)?).map(str::to_owned);
        };
        text(&settings.first()?.1).map(str::to_owned)
    }
}

pub(crate) fn text(value: &RedisValue) -> Option<&str> {
    match value {
        RedisValue::BulkString(text) => std::str::from_utf8(text).ok(),
        RedisValue::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

pub(crate) fn list(value: &RedisValue) -> &[RedisValue] {
    match value {
        RedisValue::Array(values) => values,
        _ => &[],
    }
}
