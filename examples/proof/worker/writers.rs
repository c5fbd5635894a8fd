//! Tasks that change the source, and then tell the cache.

use std::sync::Arc;
use std::time::Duration;

use bellwether::{CacheError, Changed};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use super::database::{Recorded, Recorder};
use super::source::SourceDown;
use super::{World, pause};
use crate::clock::now;
use crate::floors::{Sort, Subject};
use crate::kinds::{CHANGING, Kind, ROWS, RowKey, group_id, tag};
use crate::row::Row;
use crate::tally::Counts;

/// The longest pause of a writer, in microseconds.
const PAUSE: u64 = 240_000;

/// Between two violations that are planted.
const PLANTED_EVERY: Duration = Duration::from_millis(100);

impl World {
    /// Changes rows and groups, in all ways that there are.
    pub(super) async fn write(self: Arc<Self>, mut rng: StdRng) {
        while !self.is_ending() {
            pause(&mut rng, PAUSE).await;
            let kind = CHANGING[rng.random_range(0..CHANGING.len() - 1)];
            let key = RowKey::draw_evenly(kind, &mut rng);
            let store = rng.random_range(0..2);
            let by = if rng.random() { Recorder::Program } else { Recorder::Trigger };
            // A source that is down changes nothing.
            let _: Result<(), SourceDown> = match (rng.random_range(0..100), key.group()) {
                (0..5, Some(group)) => self.record_group(kind, group, by).await,
                (5..15, Some(group)) => self.change_group(kind, group, store, &mut rng).await,
                (0..40, _) => self.change(key, store).await,
                (40..60, _) if kind.stale_window() > Duration::ZERO => {
                    self.expire(key, store).await
                }
                (60..65, _) => self.record_row(key, by).await,
                (65..70, _) => self.invalidate_many(key, store, rng.random_range(2..8)).await,
                _ => self.invalidate(key, store).await,
            };
        }
        self.caches.drain(Duration::from_secs(2)).await;
    }

    /// Changes rows that are stored, and says so without an invalidation, so that there is a violation to find.
    pub(super) async fn plant(self: Arc<Self>, mut rng: StdRng) {
        while !self.is_ending() {
            sleep(PLANTED_EVERY).await;
            let key = RowKey { kind: Kind::Long, number: rng.random_range(ROWS / 2..ROWS) };
            let mut counts = Counts::default();
            self.read_one(key, 0, None, &mut counts).await;
            if let Ok(version) = self.change_row(key).await {
                self.returned(key, Sort::Hard, 0, version);
                self.checker.count("invalidations left out, to be found");
            }
            self.read_one(key, 0, None, &mut counts).await;
            self.checker.flush(&mut counts);
        }
    }

    /// The only writer of its rows: it puts what it has written, so that no older value is put later.
    pub(super) async fn put(self: Arc<Self>, mut rng: StdRng) {
        while !self.is_ending() {
            pause(&mut rng, PAUSE / 2).await;
            let drawn = RowKey::draw_evenly(Kind::Put, &mut rng);
            let workers = self.setup.workers as u64;
            let number = drawn.number - drawn.number % workers + u64::from(self.setup.worker);
            let key = RowKey {
                number: number.min(ROWS - workers + u64::from(self.setup.worker)),
                ..drawn
            };
            let store = rng.random_range(0..2);
            let began = now();
            let Ok(versions) = self.source.change(&[key]).await else { continue };
            let Some(versions) = versions.first().copied() else { continue };
            let row = Row::new(key.id(), versions, (began, now()), self.setup.worker);
            let put = self.caches.of(store, key).put(key.number, row).await;
            match put {
                Ok(is_stored) => {
                    self.checker.count(if is_stored { "put" } else { "put, not stored" });
                    self.returned(key, Sort::Hard, store, versions.row);
                }
                // An older value may still be stored.
                Err(_) => self.checker.count("put, failed"),
            }
        }
    }

    async fn invalidate(&self, key: RowKey, store: usize) -> Result<(), SourceDown> {
        let version = self.change_row(key).await?;
        let done = self.caches.of(store, key).invalidate(key.number).await;
        self.ended("invalidate", key, Sort::Hard, store, version, done.map(drop));
        Ok(())
    }

    async fn change(&self, key: RowKey, store: usize) -> Result<(), SourceDown> {
        let source = self.source.clone();
        let write = async move {
            let versions = source.change(&[key]).await?;
            versions.first().map(|versions| versions.row).ok_or(SourceDown)
        };
        match self.caches.of(store, key).change(key.number, write).await? {
            Changed::Invalidated(version) => {
                self.ended("change", key, Sort::Hard, store, version, Ok(()))
            }
            Changed::Pending(version, error) => {
                self.ended("change", key, Sort::Hard, store, version, Err(error));
            }
        }
        Ok(())
    }

    async fn expire(&self, key: RowKey, store: usize) -> Result<(), SourceDown> {
        let version = self.change_row(key).await?;
        let done = self.caches.of(store, key).expire(key.number).await;
        self.ended("expire", key, Sort::Soft, store, version, done.map(drop));
        Ok(())
    }

    /// Tells only the database.
    async fn record_row(&self, key: RowKey, by: Recorder) -> Result<(), SourceDown> {
        let version = self.change_row(key).await?;
        if let Some(subject) = Subject::row(key) {
            self.record(Recorded::Key(key), by, subject, version).await;
        }
        Ok(())
    }

    async fn record_group(&self, kind: Kind, group: u64, by: Recorder) -> Result<(), SourceDown> {
        let version = self.source.change_group(group_id(kind, group)).await?;
        let subject = Subject::group(kind, group);
        self.record(Recorded::Group(kind, group), by, subject, version).await;
        Ok(())
    }

    async fn invalidate_many(
        &self,
        first: RowKey,
        store: usize,
        most: u64,
    ) -> Result<(), SourceDown> {
        let keys: Vec<_> = (first.number..(first.number + most).min(ROWS))
            .map(|number| RowKey { number, ..first })
            .collect();
        let versions = self.source.change(&keys).await?;
        let numbers = keys.iter().map(|key| key.number);
        let done = self.caches.of(store, first).invalidate_many(numbers).await;
        match done {
            Ok(_) => {
                self.checker.count("invalidate_many");
                for (key, versions) in keys.into_iter().zip(versions) {
                    self.returned(key, Sort::Hard, store, versions.row);
                }
            }
            // Which of them has failed is not said.
            Err(_) => self.checker.count("invalidate_many, failed"),
        }
        Ok(())
    }

    async fn change_group(
        &self,
        kind: Kind,
        group: u64,
        store: usize,
        rng: &mut StdRng,
    ) -> Result<(), SourceDown> {
        let of_group = RowKey { kind, number: 0 };
        let handle = self.caches.of(store, of_group).handle();
        let (tag, id) = (tag(kind, group), group_id(kind, group));
        let (what, sort, version, done) = match rng.random_range(0..3) {
            0 => {
                let source = self.source.clone();
                let write = async move { source.change_group(id).await };
                match handle.change_tag(&tag, write).await? {
                    Changed::Invalidated(version) => ("change_tag", Sort::Hard, version, Ok(())),
                    Changed::Pending(version, error) => {
                        ("change_tag", Sort::Hard, version, Err(error))
                    }
                }
            }
            1 => {
                let version = self.source.change_group(id).await?;
                ("expire_tag", Sort::Soft, version, handle.expire_tag(&tag, Duration::ZERO).await)
            }
            _ => {
                let version = self.source.change_group(id).await?;
                ("invalidate_tag", Sort::Hard, version, handle.invalidate_tag(&tag).await)
            }
        };
        self.settled(what, Subject::group(kind, group), sort, store, version, done);
        Ok(())
    }

    async fn change_row(&self, key: RowKey) -> Result<u64, SourceDown> {
        let versions = self.source.change(&[key]).await?;
        versions.first().map(|versions| versions.row).ok_or(SourceDown)
    }

    fn ended(
        &self,
        what: &str,
        key: RowKey,
        sort: Sort,
        store: usize,
        version: u64,
        done: Result<(), CacheError>,
    ) {
        if let Some(subject) = Subject::row(key) {
            self.settled(what, subject, sort, store, version, done);
        }
    }

    fn returned(&self, key: RowKey, sort: Sort, store: usize, version: u64) {
        if let Some(subject) = Subject::row(key) {
            self.checker.floors().publish(subject, sort, self.checker.member(store), version);
        }
    }

    /// An invalidation has returned.
    fn settled(
        &self,
        what: &str,
        subject: Subject,
        sort: Sort,
        store: usize,
        version: u64,
        done: Result<(), CacheError>,
    ) {
        let member = self.checker.member(store);
        match done {
            Ok(()) => {
                self.checker.floors().publish(subject, sort, member, version);
                self.checker.count(what);
            }
            Err(error) if error.is_pending() => {
                self.checker.floors().keep(subject, sort, member, version);
                self.checker.count(&format!("{what}, kept"));
            }
            Err(_) => self.checker.count(&format!("{what}, failed")),
        }
    }
}
