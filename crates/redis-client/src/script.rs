//! Scripts: constant text, run by its hash.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Script};

/// A Lua script: a constant text, run by its hash. Clones share both.
///
/// A server that does not know the hash is sent the text.
#[derive(Clone, Debug)]
pub struct RedisScript {
    text: Arc<str>,
    hash: Arc<str>,
}

impl RedisScript {
    /// The functions that scripts of all protocols share: `read`, `peek`, `watch`, `fence_at`,
    /// `has_marks`, `add_mark`, `tell` and `server_time`. A script that uses them has this as its first part.
    pub const PRELUDE: &'static str = include_str!("prelude.lua");

    /// A script that consists of these parts, in order.
    pub fn new(parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let hash = Script::new(&text).get_hash().into();
        Self { text: text.into(), hash }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// Loads scripts, so that no burst begins with an unknown hash.
    pub(super) async fn load(
        scripts: &[Self],
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let mut load = redis::pipe();
        for script in scripts {
            load.cmd("SCRIPT").arg("LOAD").arg(script.text()).ignore();
        }
        load.query_async(connection).await
    }
}
