//! Runs the bursts: in each round one per way, on the same keys.

use std::io::IsTerminal;
use std::time::Duration;

use tokio::time::sleep;
use uuid::Uuid;

use crate::args::Settings;
use crate::database::{self, Counts, Database};
use crate::fleet::Fleet;
use crate::measure::Burst;
use crate::messages::{Order, Setup};
use crate::popularity::Popularity;
use crate::server::{self, Meter};
use crate::ways::Way;
use crate::{Fault, clock};

/// Time between the order and the burst, to read the order and to start the callers.
const NOTICE: Duration = Duration::from_millis(30);
/// Additional time for each thousand callers, since all processes share one machine.
const NOTICE_PER_THOUSAND: Duration = Duration::from_millis(10);
/// Time after the last answer: commands that a way sends then belong to its burst.
const REST: Duration = Duration::from_millis(20);

/// All measurements of a run.
pub(crate) struct Outcome {
    pub(crate) bursts: Vec<Burst>,
    pub(crate) queries: Counts,
    pub(crate) redis_version: Option<String>,
}

pub(crate) async fn run(settings: &Settings) -> Result<Outcome, Fault> {
    let is_watched = std::io::stderr().is_terminal();
    let mut run = Run::prepare(settings).await?;
    let mut bursts = Vec::new();
    for round in 0..settings.rounds {
        if is_watched {
            eprint!("\rround {} of {} ", round + 1, settings.rounds);
        }
        for way in in_turn(settings.ways(), round) {
            bursts.push(run.burst(way, round).await?);
        }
    }
    if is_watched {
        eprintln!();
    }
    run.end(bursts).await
}

/// A different way goes first in each round, so that no way always finds a database that another
/// has warmed up.
fn in_turn(ways: &[Way], round: u32) -> impl Iterator<Item = Way> {
    ways.iter().copied().cycle().skip(round as usize % ways.len()).take(ways.len())
}

struct Run<'a> {
    settings: &'a Settings,
    popularity: Popularity,
    database: Database,
    meter: Option<Meter>,
    fleet: Fleet,
}

impl<'a> Run<'a> {
    async fn prepare(settings: &'a Settings) -> Result<Self, Fault> {
        let setup = Setup {
            run: Uuid::new_v4().simple().to_string()[..8].to_owned(),
            database_url: database::prepare(settings.database_url.as_deref()).await?,
            redis_url: settings.redis_url().map(str::to_owned),
            load_ms: settings.load_ms,
            connections: settings.connections.div_ceil(settings.processes),
            ways: settings.ways().to_vec(),
        };
        let meter = match settings.redis_url() {
            Some(url) => {
                Some(Meter::open(url).await.map_err(|fault| settings.not_reached(&fault))?)
            }
            None => None,
        };
        Ok(Self {
            settings,
            popularity: Popularity::new(settings.keys, settings.zipf)?,
            database: database::open(&setup.database_url, &setup.run, 1).await?,
            meter,
            fleet: Fleet::start(settings.processes, &setup).await?,
        })
    }

    async fn burst(&mut self, way: Way, round: u32) -> Result<Burst, Fault> {
        let before = self.calls().await?;
        let start = clock::now() + self.notice().as_micros() as u64;
        let reports = self.fleet.burst(&self.orders(way, round, start)).await?;
        sleep(REST).await;
        let commands = before
            .zip(self.calls().await?)
            .map(|(before, after)| server::sent(way, &before, &after));
        Ok(Burst::new(way, round, start, reports, commands))
    }

    async fn calls(&mut self) -> Result<Option<server::Calls>, Fault> {
        match &mut self.meter {
            Some(meter) => meter.calls().await.map(Some),
            None => Ok(None),
        }
    }

    fn notice(&self) -> Duration {
        NOTICE + NOTICE_PER_THOUSAND * (self.settings.callers * self.settings.processes / 1_000)
    }

    fn orders(&self, way: Way, round: u32, start: u64) -> Vec<Order> {
        let callers = self.settings.callers as usize;
        let skus = self.popularity.draw(round, callers * self.settings.processes as usize);
        skus.chunks(callers)
            .map(|skus| Order { way, round, start, skus: skus.to_owned() })
            .collect()
    }

    async fn end(self, bursts: Vec<Burst>) -> Result<Outcome, Fault> {
        let Self { database, meter, fleet, .. } = self;
        drop(fleet);
        let queries = database.counts().await?;
        database.forget().await?;
        let redis_version = match meter {
            Some(mut meter) => Some(meter.version().await?),
            None => None,
        };
        Ok(Outcome { bursts, queries, redis_version })
    }
}
