//! A worker's rows with tags, of which it loads a few at once, and the orders about them.

use std::sync::Arc;
use std::time::Duration;

use bellwether::service::ReadThrough;
use bellwether::{Key, ReadThroughLayer, Tag, Wait};
use bellwether_redis::RedisStore;
use bellwether_testkit::clock;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service};

use crate::database::Client;
use crate::messages::{Answer, Event, Setup, What};
use crate::worker::{Ask, LONG, Loader, Member, key_of};

/// An order about rows with tags.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum TagOrder {
    /// Callers ask for rows.
    Ask(RowCallers),
    /// Each of the first rows is changed, and its own tag invalidated.
    InvalidateEach { rows: u64 },
    /// The tag that all rows have is invalidated.
    InvalidateAll,
    /// It is expired, over so many milliseconds.
    ExpireAll { over_ms: u64 },
}

/// Callers of one process, and the rows for which they ask: each for a part of them, one by one.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct RowCallers {
    pub(crate) callers: u64,
    pub(crate) rows: u64,
    /// How many callers ask for each row.
    pub(crate) per_row: u64,
}

/// Rows through the cache, with a bound below it.
pub(crate) type LimitedRows = ReadThrough<ConcurrencyLimit<Loader>, fn(&Ask) -> Key>;

fn tag_of_row(row: u64) -> Tag {
    Tag::of("row").with(row)
}

fn tag_of_all() -> Tag {
    Tag::of("all rows")
}

pub(crate) fn limited_rows(
    store: &RedisStore,
    database: &Arc<Client>,
    setup: &Setup,
) -> LimitedRows {
    let key: fn(&Ask) -> Key = |ask| key_of(ask.key);
    ReadThroughLayer::builder(store.clone(), key)
        .ttl(Duration::from_millis(setup.ttl_ms))
        .stale_while_revalidate(LONG)
        .lease(Duration::from_millis(setup.lease_ms))
        .load_timeout(LONG)
        .wait(Wait::at_most(LONG))
        .tags(|ask: &Ask| [tag_of_row(ask.key), tag_of_all()])
        .build()
        .expect("options")
        .layer(ConcurrencyLimit::new(Loader::over(database), LOADS_AT_ONCE))
}

impl Member {
    /// Does as it is told. The key of an event is a row.
    pub(crate) async fn obey_about_tags(&self, order: TagOrder) -> Vec<Event> {
        let handle = self.limited().handle();
        match order {
            TagOrder::Ask(asking) => self.ask_rows(asking).await,
            TagOrder::InvalidateEach { rows } => {
                let changes = stream::iter(0..rows).map(|row| self.invalidate_row(row));
                changes.buffered(CHANGES_AT_ONCE).collect().await
            }
            TagOrder::InvalidateAll => {
                handle.invalidate_tag(&tag_of_all()).await.expect("Redis runs");
                Vec::new()
            }
            TagOrder::ExpireAll { over_ms } => {
                let over = Duration::from_millis(over_ms);
                handle.expire_tag(&tag_of_all(), over).await.expect("Redis runs");
                Vec::new()
            }
        }
    }

    async fn ask_rows(&self, asking: RowCallers) -> Vec<Event> {
        let RowCallers { callers, rows, per_row } = asking;
        let tasks = (0..callers).map(|caller| {
            let service = self.limited().clone();
            let part = caller * rows / callers..(caller + per_row) * rows / callers;
            tokio::spawn(async move {
                let mut history = Vec::new();
                for row in part {
                    history.push(ask(&service, row % rows).await);
                }
                history
            })
        });
        let histories = join_all(tasks.collect::<Vec<_>>()).await;
        histories.into_iter().flat_map(|history| history.expect("no panic")).collect()
    }

    async fn invalidate_row(&self, row: u64) -> Event {
        let version = self.write(row).await;
        let began = clock::now();
        let done = self.limited().handle().invalidate_tag(&tag_of_row(row)).await;
        let what = What::of_change(done, version);
        Event { key: row, began, ended: clock::now(), what }
    }
}

async fn ask(service: &LimitedRows, row: u64) -> Event {
    let ask = Ask { key: row, before: 0, after: LOAD_US };
    let began = clock::now();
    let answer = service.clone().call(ask).with_status().await;
    let Answer { version, how, at: ended } = Answer::of(answer);
    let what = match version {
        Ok(version) => What::Read { version, how },
        Err(error) => What::ReadFailed(error),
    };
    Event { key: row, began, ended, what }
}

/// How many rows a process loads at once.
pub(crate) const LOADS_AT_ONCE: usize = 8;

/// How many invalidations a process makes at once.
const CHANGES_AT_ONCE: usize = 50;

/// How long a load takes at least, so that loads come together.
const LOAD_US: u64 = 2_000;
