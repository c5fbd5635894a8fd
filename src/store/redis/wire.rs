//! Wires: one connection that asks and hears, for those who keep no entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt, io};

pub use redis::Value;

use super::health::Health;
use super::lane::{Lane, Reply};
use super::link::{Ears, Links, Question};
use super::names::Names;
use super::options::RedisOptions;
use super::reconnect::{Attempts, Moves};
use super::script::Source;
use super::trouble::Trouble;
use crate::error::StoreError;
use crate::jitter::jitter;
use crate::key::{Digest, Key};
use crate::store::{Watch, Watchers};

/// One connection to a server, replaced when it breaks, that scripts are run over and that hears
/// of changes of what they have read.
pub struct Wire {
    options: RedisOptions,
    health: Health,
    names: Names,
    watchers: Watchers,
    /// Whether the server tells of changes.
    told: Arc<AtomicBool>,
    lane: Lane,
}

impl Wire {
    /// A wire that connects when it is first used, and tells these watchers.
    pub fn new(options: RedisOptions, scripts: Arc<[Source]>, watchers: Watchers) -> Self {
        let names = Names::new(&options.namespace);
        let told = Arc::new(AtomicBool::new(options.tracking));
        let ears = Ears {
            names: names.clone(),
            watchers: watchers.clone(),
            near: None,
            open: Arc::clone(&told),
            heard: Arc::new(AtomicU64::new(0)),
        };
        let lane = Lane::new(Links {
            client: options.client.clone(),
            protocol: options.protocol(),
            timeout: options.timeout,
            scripts,
            made: Arc::new(AtomicU64::new(0)),
            attempts: Attempts::new(options.probe_every / 2),
            moves: Arc::new(Moves::default()),
            clock: None,
            ears: Some(ears),
        });
        let health = Health::new(options.rules(jitter()));
        Self { options, health, names, watchers, told, lane }
    }

    /// Where it leads to.
    pub fn options(&self) -> &RedisOptions {
        &self.options
    }

    /// Hints that something changes that a script has read for a key.
    pub fn watch(&self, digest: Digest) -> Watch {
        if self.told.load(Ordering::Relaxed) {
            self.watchers.watch(digest)
        } else {
            Watch::silent()
        }
    }

    /// A name of a key.
    pub fn name(&self, digest: &Digest, suffix: &str) -> Vec<u8> {
        self.names.name(digest, suffix.as_bytes())
    }

    /// A name that all keys of the namespace share.
    pub fn shared_name(&self, suffix: &str) -> Vec<u8> {
        format!("bw:{}:{suffix}", self.options.namespace).into_bytes()
    }

    /// Runs a script, within the timeout of the options, and reads its reply.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the script may have run, or run later.
    pub async fn run<T>(
        &self,
        call: Call<'_>,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let Call { source, keys, args, doing, key } = call;
        let script = Question::Script { source, keys, args };
        self.ask(&script, doing, key, |reply| read(reply.value)).await
    }

    /// Runs a script that finds nothing to do when it is executed for the second time. `read` is
    /// not asked about a second execution that found nothing: what the first one did is unknown.
    ///
    /// # Errors
    /// As those of [`run`](Self::run); [`Unreachable`](crate::StoreErrorKind::Unreachable) if it
    /// is unknown what the script did.
    ///
    /// # Cancel safety
    /// As that of [`run`](Self::run).
    pub async fn run_once<T>(
        &self,
        call: Call<'_>,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let Call { source, keys, args, doing, key } = call;
        let script = Question::Script { source, keys, args };
        let found = self.ask(&script, doing, key, |reply| match reply {
            Reply { value: Value::Int(0), is_repeated: true } => Some(None),
            Reply { value, .. } => read(value).map(Some),
        });
        found.await?.ok_or_else(|| {
            let lost = io::Error::from(io::ErrorKind::ConnectionReset).into();
            Trouble::Reported(lost).during(doing, Some(key))
        })
    }

    async fn ask<T>(
        &self,
        question: &Question<'_>,
        doing: &'static str,
        key: &Key,
        read: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<T, StoreError> {
        self.health
            .around(async {
                let reply = self.lane.ask_and_note(question).await;
                let read = reply.and_then(|reply| read(reply).ok_or(Trouble::Malformed));
                read.map_err(|trouble| trouble.during(doing, Some(key)))
            })
            .await
    }
}

/// A script to be run.
#[derive(Debug)]
pub struct Call<'a> {
    /// The script.
    pub source: &'a Source,
    /// Its keys.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// What it does, for messages: "taking the lock".
    pub doing: &'static str,
    /// To which key.
    pub key: &'a Key,
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("address", &self.options.address())
            .field("namespace", &self.options.namespace)
            .field("timeout", &self.options.timeout)
            .field("hears", &self.told.load(Ordering::Relaxed))
            .field("is_down", &self.health.is_down())
            .finish()
    }
}
