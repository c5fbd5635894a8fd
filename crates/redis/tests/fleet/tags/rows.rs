//! A worker's rows with tags, of which it loads a few at once, and the orders about them.

use std::time::Duration;

use bellwether_testkit::clock;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tower::Service;

use crate::answer::Answer;
use crate::messages::{Event, RowCallers, TagOrder, What};
use crate::rows::{Ask, LimitedRows, tag_of_all, tag_of_row};
use crate::worker::Member;

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

/// How many invalidations a process makes at once.
const CHANGES_AT_ONCE: usize = 50;

/// How long a load takes at least, so that loads come together.
const LOAD_US: u64 = 2_000;
