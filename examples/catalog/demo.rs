//! What the page shows and switches.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::Fault;
use crate::fleet::Fleet;
use crate::redis_server::RedisServer;

/// The processes, and what is done to them.
pub(crate) struct Demo {
    pub(crate) fleet: Fleet,
    store: &'static str,
    /// The database whose changes by SQL are recorded, or what is missing for that.
    pub(crate) recorded: Result<String, &'static str>,
    /// Held during a scene: figures of two would mix.
    pub(crate) stage: Mutex<()>,
    /// Held while something is switched.
    switches: Mutex<Switches>,
}

struct Switches {
    slow: bool,
    broken: bool,
    /// Nothing if the store is not ours.
    redis: Option<Redis>,
}

enum Redis {
    Runs(RedisServer),
    Stopped(std::net::SocketAddr),
}

/// What can be switched on and off.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    Slow,
    Broken,
    Stopped,
}

/// The figures of all processes, and the state of what they use.
#[derive(Serialize)]
pub(crate) struct Figures<'a> {
    urls: Vec<&'a str>,
    processes: Vec<Value>,
    store: &'static str,
    slow: bool,
    broken: bool,
    /// Nothing if the store cannot be stopped.
    stopped: Option<bool>,
    /// What is missing for a change by SQL.
    missing: Option<&'static str>,
}

impl Demo {
    pub(crate) fn new(
        fleet: Fleet,
        store: &'static str,
        redis: Option<RedisServer>,
        recorded: Result<String, &'static str>,
    ) -> Self {
        let redis = redis.map(Redis::Runs);
        let switches = Mutex::new(Switches { slow: false, broken: false, redis });
        Self { fleet, store, recorded, stage: Mutex::new(()), switches }
    }

    pub(crate) async fn figures(&self) -> Result<Figures<'_>, Fault> {
        let processes = self.fleet.get_all("/stats").await?;
        let switches = self.switches.lock().await;
        let stopped = switches.redis.as_ref().map(|redis| matches!(redis, Redis::Stopped(_)));
        let (urls, store) = (self.fleet.urls(), self.store);
        let missing = self.recorded.as_ref().err().copied();
        let Switches { slow, broken, .. } = *switches;
        Ok(Figures { urls, processes, store, slow, broken, stopped, missing })
    }

    pub(crate) async fn set(&self, switch: Switch, is_on: bool) -> Result<(), Fault> {
        let mut switches = self.switches.lock().await;
        match switch {
            Switch::Slow => switches.slow = is_on,
            Switch::Broken => switches.broken = is_on,
            Switch::Stopped => {
                let redis = switches.redis.take().ok_or("this store cannot be stopped")?;
                switches.redis = Some(redis.stopped(is_on).await?);
            }
        }
        let Switches { slow, broken, .. } = *switches;
        self.fleet.post_all(&format!("/weather?slow={slow}&broken={broken}")).await?;
        Ok(())
    }
}

impl Redis {
    async fn stopped(self, is_to_be: bool) -> Result<Self, Fault> {
        Ok(match (self, is_to_be) {
            (Self::Runs(server), true) => Self::Stopped(server.stop().await?),
            (Self::Stopped(address), false) => Self::Runs(RedisServer::start_at(address).await?),
            (as_it_is, _) => as_it_is,
        })
    }
}
