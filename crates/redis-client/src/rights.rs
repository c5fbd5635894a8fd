//! Permissions: whether the user may run the commands of scripts.

use std::sync::LazyLock;

use redis::Value;

use super::request::{RedisRequest, RedisScript};
use super::server_error::{self, ServerError, classify_text};
use super::slots::InSlot;
use bellwether::StoreError;
use bellwether::store::StoreErrorKind;

/// The requests that check that the user may run scripts by these names, and these commands in them: by
/// text and by hash, because a server that was restarted does not know the hash, and a user needs the
/// permission for both.
pub(super) fn checks(names: Vec<Vec<u8>>, commands: &[&str]) -> [RedisRequest<'static>; 2] {
    let (slot, commands) = (names[0].slot(), vec![commands.join(" ").into_bytes()]);
    let head = [RIGHTS.text(), &names.len().to_string()].map(|text| text.as_bytes().to_vec());
    let args = [&head[..], &names, &commands].concat();
    let by_text = RedisRequest::command("EVAL", [], args, CHECKING).in_slot(slot);
    [by_text, RedisRequest::script(&RIGHTS, names, commands, CHECKING)]
}

/// Reads the reply to a check.
///
/// # Errors
/// What is missing.
pub(super) fn read_reply(reply: Value) -> Result<(), StoreError> {
    let Value::BulkString(said) = reply else {
        return Err(ServerError::malformed().during(CHECKING, None));
    };
    let mut missing = Vec::new();
    for (command, why) in
        String::from_utf8_lossy(&said).lines().filter_map(|line| line.split_once(' '))
    {
        match classify_text(why) {
            Some(class) if class.advice == server_error::RIGHTS => {
                missing.push(format!("+{command}"))
            }
            // Without messages, waiters poll.
            Some(class)
                if class.is_of_replica()
                    || class.kind == StoreErrorKind::Misconfigured && command != "publish" =>
            {
                let message = format!("redis, {CHECKING}: `{command}`: {why}: {}", class.advice);
                return Err(StoreError::new(class.kind, message));
            }
            // It may be over soon.
            _ => {
                tracing::warn!(target: "bellwether::store", command, why, "redis refuses a write for now")
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "redis, {CHECKING}: the user may not run what the scripts need: \
         `ACL SETUSER <user> {}` allows it",
        missing.join(" ")
    );
    Err(StoreError::new(StoreErrorKind::Misconfigured, message))
}

static RIGHTS: LazyLock<RedisScript> =
    LazyLock::new(|| RedisScript::new(include_str!("rights.lua")));

const CHECKING: &str = "connecting";

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[[&str; 2]]) -> Result<(), StoreError> {
        let lines: Vec<_> = pairs.iter().map(|pair| pair.join(" ")).collect();
        read_reply(Value::BulkString(lines.join("\n").into_bytes()))
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
    fn a_command_that_the_server_does_not_know_is_named() {
        for server in ["Unknown Redis command", "Unknown command"] {
            let why = format!("ERR {server} called from script script: 1f, on @user_script:1.");
            let error = refusal(&[["del", &why]]).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
            assert!(error.to_string().contains("`del`"), "{error}");
            assert!(refusal(&[["publish", &why]]).is_ok());
        }
    }

    #[test]
    fn a_reply_of_another_shape_is_malformed() {
        let error = read_reply(Value::Int(1)).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Malformed);
    }
}
