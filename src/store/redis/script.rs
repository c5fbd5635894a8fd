//! The scripts: constant text, called by their hash.

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

/// A script's text and its hash.
#[derive(Debug)]
pub(super) struct Source {
    text: String,
    hash: String,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            abandon: Source::new(include_str!("abandon.lua")),
            acquire: Source::new(include_str!("acquire.lua")),
            check: Source::new(include_str!("check.lua")),
            commit: Source::new(include_str!("commit.lua")),
            fail: Source::new(include_str!("fail.lua")),
            invalidate: Source::new(include_str!("invalidate.lua")),
            look: Source::new(include_str!("look.lua")),
            renew: Source::new(include_str!("renew.lua")),
        }
    }

    /// Tells the server those of operations, so that no burst begins with an unknown hash.
    pub(super) async fn load(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let Self { abandon, acquire, check: _, commit, fail, invalidate, look, renew } = self;
        let mut load = redis::pipe();
        for source in [abandon, acquire, commit, fail, invalidate, look, renew] {
            load.cmd("SCRIPT").arg("LOAD").arg(&source.text).ignore();
        }
        load.query_async(connection).await
    }
}

impl Source {
    fn new(text: &'static str) -> Self {
        let text = [include_str!("prelude.lua"), text].join("\n");
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
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
