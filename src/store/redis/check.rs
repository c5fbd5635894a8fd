//! The check at start-up: whether the server is one that this store can work with.

use redis::{Value, from_redis_value};

use super::link::Question;
use super::looks::Looks;
use super::trouble::{Trouble, Within, within_script};
use super::{Inner, RedisStore};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;

impl RedisStore {
    /// Connects now instead of at the first use, and does what operations do, on names that nobody
    /// uses. Nothing is left behind.
    ///
    /// What a server refuses for now (it is full, or has too few replicas) is logged only: it
    /// answers looks, and may take writes later.
    pub(super) async fn prepare(&self) -> Result<(), StoreError> {
        let Inner { names, scripts, plain, .. } = &*self.0;
        let hearing = self.0.hearing.lane();
        let [name, other] = [1, 2]
            .map(|number: u64| names.entry(&Key::of("bellwether.check").with(number).digest()));
        // In two slots: a node of a cluster says what it is.
        let mut look = redis::cmd("MGET");
        look.arg(&name).arg(other);
        hearing.ask(&Question::Command(look)).await.map_err(during)?;
        let (source, keys) = (&scripts.check, vec![name]);
        // By text, as a server that was restarted needs it, and then by hash.
        let by_text = Question::Command(source.by_text(&keys, &[]));
        judge(hearing.ask(&by_text).await.map_err(during)?)?;
        let by_hash = Question::Script { source, keys, args: Vec::new() };
        hearing.ask(&by_hash).await.map_err(during)?;
        for lane in plain.iter().map(Looks::lane).chain([hearing]) {
            let ping = Question::Command(redis::cmd("PING"));
            lane.ask(&ping).await.map_err(during)?;
        }
        Ok(())
    }
}

fn judge(reply: Value) -> Result<(), StoreError> {
    let said: Vec<String> = from_redis_value(reply).map_err(|_| during(Trouble::Malformed))?;
    let mut missing = Vec::new();
    for [command, why] in said.as_chunks().0 {
        match within_script(why) {
            Within::Forbidden => missing.push(format!("+{command}")),
            Within::Replica(advice) => {
                let message = format!("redis, {CONNECTING}: {why}: {advice}");
                return Err(StoreError::new(StoreErrorKind::Refused, message));
            }
            Within::Else => tracing::warn!(command, why, "redis refuses a write for now"),
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

fn during(trouble: Trouble) -> StoreError {
    trouble.during(CONNECTING, None)
}

const CONNECTING: &str = "connecting";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[[&str; 2]]) -> Result<(), StoreError> {
        let said = pairs.iter().flatten().map(|said| Value::BulkString(said.as_bytes().to_vec()));
        judge(Value::Array(said.collect()))
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
        let error = judge(Value::Int(1)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Malformed);
    }
}
