//! The scripts: constant text, called by their hash.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};

/// The scripts of a `RedisStore`, one per operation, and one that checks what they need.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) abandon: Source,
    pub(super) acquire: Source,
    pub(super) check: Source,
    pub(super) commit: Source,
    pub(super) fail: Source,
    pub(super) invalidate: Source,
    pub(super) look: Source,
    pub(super) renew: Source,
}

/// A script's text and its hash. Clones share both.
#[derive(Clone, Debug)]
pub struct Source {
    text: Arc<str>,
    hash: Arc<str>,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            abandon: ours(include_str!("abandon.lua")),
            acquire: ours(include_str!("acquire.lua")),
            check: ours(include_str!("check.lua")),
            commit: ours(include_str!("commit.lua")),
            fail: ours(include_str!("fail.lua")),
            invalidate: ours(include_str!("invalidate.lua")),
            look: ours(include_str!("look.lua")),
            renew: ours(include_str!("renew.lua")),
        }
    }

    /// Those of operations, which the server is told beforehand.
    pub(super) fn of_operations(&self) -> Arc<[Source]> {
        let Self { abandon, acquire, check: _, commit, fail, invalidate, look, renew } = self;
        [abandon, acquire, commit, fail, invalidate, look, renew].into_iter().cloned().collect()
    }
}

fn ours(text: &str) -> Source {
    Source::new(&[include_str!("prelude.lua"), text])
}

impl Source {
    /// A script of parts that follow each other.
    pub fn new(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let hash = Script::new(&text).get_hash().into();
        Self { text: text.into(), hash }
    }

    /// Tells the server scripts, so that no burst begins with an unknown hash.
    pub(super) async fn load(
        sources: &[Self],
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let mut load = redis::pipe();
        for source in sources {
            load.cmd("SCRIPT").arg("LOAD").arg(&*source.text).ignore();
        }
        load.query_async(connection).await
    }

    /// Runs it. A server that has forgotten it (restart, `SCRIPT FLUSH`) is told the text again.
    pub(super) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, RedisError> {
        let by_hash = call("EVALSHA", &self.hash, keys, args);
        match by_hash.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.by_text(keys, args).query_async(connection).await
            }
            answer => answer,
        }
    }

    /// The command that runs it on a server that does not know it.
    pub(super) fn by_text(&self, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Cmd {
        call("EVAL", &self.text, keys, args)
    }
}

fn call(command: &str, script: &str, keys: &[Vec<u8>], args: &[Vec<u8>]) -> Cmd {
    let mut call = redis::cmd(command);
    call.arg(script).arg(keys.len()).arg(keys).arg(args);
    call
}
