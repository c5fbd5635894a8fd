//! The check at start-up: whether the store can work with the server.

use super::client::{RedisRequest, RedisScript, RedisValue, Refusal, RequestError, Route, refusal};
use super::inner::Inner;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;

/// Connects now instead of at the first use, and runs the commands of operations on names that are
/// not used. It leaves nothing behind.
///
/// A temporary refusal (the server is full, or has too few replicas) is only logged, because the
/// server answers lookups and may accept writes later.
pub(super) async fn prepare(store: &Inner) -> Result<(), StoreError> {
    let client = &store.client;
    client.connect().await?;
    for name in client.names_on_nodes("check") {
        let mut names = vec![name.clone()];
        if !client.is_cluster() {
            // Two names in two slots: a node of a cluster refuses that.
            names.push(store.entry_name(&Key::of("bellwether.check").digest()));
        }
        client.run(&RedisRequest::command("MGET", names, CONNECTING), Some).await?;
        check(store, &store.scripts.check, name).await?;
    }
    let plain = (0..client.options().plain_connections() as usize).map(Route::Plain);
    for route in plain.chain([Route::Tracked]) {
        for probe in client.probes(CONNECTING) {
            client.run(&probe.over(route), Some).await?;
        }
    }
    Ok(())
}

/// Runs the check by its text, because a restarted server does not know the hash, and then by hash.
async fn check(store: &Inner, script: &RedisScript, name: Vec<u8>) -> Result<(), StoreError> {
    let by_hash = || RedisRequest::script(script, [name.clone()], [], CONNECTING);
    read_reply(store.client.run(&by_hash().by_text(), Some).await?)?;
    store.client.run(&by_hash(), Some).await.map(drop)
}

fn read_reply(reply: RedisValue) -> Result<(), StoreError> {
    let said = texts(reply).ok_or_else(|| RequestError::Malformed.during(CONNECTING, None))?;
    let mut missing = Vec::new();
    for [command, why] in said.as_chunks().0 {
        match refusal(why) {
            Refusal::Forbidden => missing.push(format!("+{command}")),
            Refusal::Replica(advice) => {
                let message = format!("redis, {CONNECTING}: {why}: {advice}");
                return Err(StoreError::new(StoreErrorKind::Refused, message));
            }
            Refusal::Temporary => tracing::warn!(command, why, "redis refuses a write for now"),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "redis, {CONNECTING}: the user may not run what the scripts need: \
         `ACL SETUSER <user> {}` allows it",
        missing.join(" ")
    );
    Err(StoreError::new(StoreErrorKind::Misconfigured, message))
}

fn texts(reply: RedisValue) -> Option<Vec<String>> {
    let RedisValue::Array(texts) = reply else { return None };
    let text = |text| match text {
        RedisValue::Bytes(text) => String::from_utf8(text).ok(),
        _ => None,
    };
    texts.into_iter().map(text).collect()
}

const CONNECTING: &str = "connecting";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[[&str; 2]]) -> Result<(), StoreError> {
        let said = pairs.iter().flatten().map(|said| RedisValue::Bytes(said.as_bytes().to_vec()));
        read_reply(RedisValue::Array(said.collect()))
    }

    #[test]
    fn all_rights_that_are_missing_are_named_at_once() {
        let why = "ERR The user executing the script can't run this command or subcommand";
        let error = refusal(&[["pttl", why], ["del", why]]).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        assert!(error.to_string().contains("+pttl +del"), "{error}");
    }

    #[test]
    fn a_server_that_is_full_is_no_error() {
        assert!(
            refusal(&[["set", "OOM command not allowed when used memory > 'maxmemory'."]]).is_ok()
        );
        assert!(refusal(&[]).is_ok());
    }

    #[test]
    fn a_replica_is_an_error() {
        let error = refusal(&[["set", "READONLY You can't write against a read only replica."]]);
        assert!(error.unwrap_err().to_string().contains("primary"));
    }

    #[test]
    fn a_reply_of_another_shape_is_malformed() {
        let error = read_reply(RedisValue::Int(1)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Malformed);
    }
}
