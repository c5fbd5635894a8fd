//! Tasks that read.

use std::sync::Arc;
use std::time::Duration;

use bellwether::{CacheStatus, Error};
use futures_util::poll;
use rand::Rng;
use rand::rngs::StdRng;
use std::pin::pin;
use std::task::Poll;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::checker::{Answered, Began, NEAR};
use super::source::SourceDown;
use super::{World, pause};
use crate::kinds::{Kind, RowKey};
use crate::row::Row;
use crate::tally::Counts;

/// How many rows are read in a row, each so many times, as those that are in demand are.
const AT_ONCE: usize = 16;
const TIMES: usize = 4;

/// How many answers of the store one task may wait for meanwhile.
const WAITING: usize = 4;

/// While Redis is down, a task pauses so long after each load without the cache.
const AFTER_BYPASS: Duration = Duration::from_millis(20);

type WithStatus = (Result<Row, Error<SourceDown>>, CacheStatus);

/// The longest pause of a reader, in microseconds.
const PAUSE: u64 = 40_000;

impl World {
    /// Reads near copies in quick succession. Where there is none, another task waits for the answer.
    pub(super) async fn read_near(self: Arc<Self>, mut rng: StdRng) {
        let rate = (self.setup.near_rate / super::NEAR_READERS).max(1);
        let interval =
            Duration::from_secs(1) * (AT_ONCE * TIMES) as u32 / rate.try_into().unwrap_or(u32::MAX);
        let waiting = Arc::new(Semaphore::new(WAITING));
        let mut counts = Counts::default();
        let mut next = Instant::now();
        while !self.is_ending() {
            let mut keys: Vec<_> =
                (0..AT_ONCE).map(|_| RowKey::draw(near_kind(&mut rng), &mut rng)).collect();
            for _ in 0..TIMES {
                let mut copied = Vec::with_capacity(keys.len());
                for key in keys {
                    if self.read_copy(key, &waiting, &mut counts).await {
                        copied.push(key);
                    }
                }
                keys = copied;
            }
            self.checker.flush(&mut counts);
            // After a wait for the store, it does not catch up.
            next = (next + interval).max(Instant::now() - interval);
            sleep_until(next).await;
        }
        // All answers are checked.
        let _ = waiting.acquire_many(WAITING as u32).await;
    }

    /// Returns whether there was a copy.
    async fn read_copy(
        self: &Arc<Self>,
        key: RowKey,
        waiting: &Arc<Semaphore>,
        counts: &mut Counts,
    ) -> bool {
        let (began, mut reading) = self.begin_one(key, NEAR, None);
        if let Poll::Ready((answer, status)) = poll!(&mut reading) {
            let answered = Answered { answer, status: Some(status), at_once: true, limit: None };
            self.checker.end(&began, &answered, counts);
            return true;
        }
        let Ok(permit) = Arc::clone(waiting).acquire_owned().await else { return false };
        let world = Arc::clone(self);
        tokio::spawn(async move {
            let mut counts = Counts::default();
            let (answer, status) = reading.await;
            let answered = Answered { answer, status: Some(status), at_once: false, limit: None };
            world.checker.end(&began, &answered, &mut counts);
            world.checker.flush(&mut counts);
            if matches!(answered.status, Some(CacheStatus::Bypass(_) | CacheStatus::Failed)) {
                sleep(AFTER_BYPASS).await;
            }
            drop(permit);
        });
        false
    }

    /// Reads one by one and in batches, with deadlines and without, through both stores.
    pub(super) async fn read(self: Arc<Self>, mut rng: StdRng) {
        let mut counts = Counts::default();
        while !self.is_ending() {
            pause(&mut rng, PAUSE).await;
            let key = RowKey::draw(kind(&mut rng), &mut rng);
            let store = usize::from(rng.random_ratio(1, 3));
            match rng.random_range(0..100) {
                0..65 => _ = self.read_one(key, store, None, &mut counts).await,
                65..70 => {
                    // A caller that leaves takes nothing from the others.
                    let patience = Duration::from_micros(rng.random_range(0..20_000));
                    let reading = self.read_one(key, store, None, &mut counts);
                    if timeout(patience, reading).await.is_err() {
                        self.checker.count("callers that left");
                    }
                }
                70..82 => {
                    let limit = Duration::from_millis(rng.random_range(2..400));
                    _ = self.read_one(key, store, Some(limit), &mut counts).await;
                }
                82..90 => self.get(key, store, &mut counts).await,
                _ => self.read_many(key, store, rng.random_range(2..24), &mut counts).await,
            }
            self.checker.flush(&mut counts);
        }
    }

    /// Reads a row, which is loaded if it is missing. Returns how it was answered.
    pub(super) async fn read_one(
        &self,
        key: RowKey,
        store: usize,
        limit: Option<Duration>,
        counts: &mut Counts,
    ) -> Answered {
        let (began, mut reading) = self.begin_one(key, store, limit);
        let (at_once, (answer, status)) = match poll!(&mut reading) {
            Poll::Ready(answered) => (true, answered),
            Poll::Pending => (false, reading.await),
        };
        let answered = Answered { answer, status: Some(status), at_once, limit };
        self.checker.end(&began, &answered, counts);
        answered
    }

    /// Begins to read a row: what has returned before this call binds the answer.
    fn begin_one(
        &self,
        key: RowKey,
        store: usize,
        limit: Option<Duration>,
    ) -> (Began, impl Future<Output = WithStatus> + Unpin + Send + use<>) {
        let source = self.source.clone();
        let load = move || source.load(key);
        let cache = self.caches.of(store, key);
        let with_deadline = limit.map(|limit| cache.with_deadline(Instant::now() + limit));
        let cache = with_deadline.as_ref().unwrap_or(cache);
        let began = self.checker.begin(key, store);
        (began, cache.get_or_load(key.number, load).with_status())
    }

    /// Reads a row if it is stored.
    async fn get(&self, key: RowKey, store: usize, counts: &mut Counts) {
        let began = self.checker.begin(key, store);
        let mut reading = pin!(self.caches.of(store, key).get(key.number));
        let (at_once, got) = match poll!(&mut reading) {
            Poll::Ready(got) => (true, got),
            Poll::Pending => (false, reading.await),
        };
        let answer = match got {
            Ok(None) => return,
            Ok(Some(row)) => Ok(row),
            Err(error) => Err(error.into()),
        };
        let answered = Answered { answer, status: None, at_once, limit: None };
        self.checker.end(&began, &answered, counts);
    }

    /// Reads a row and those behind it, in the same group.
    async fn read_many(&self, first: RowKey, store: usize, most: u64, counts: &mut Counts) {
        let keys: Vec<_> = (first.number..first.number + most)
            .map(|number| RowKey { number, ..first })
            .filter(|key| key.number < crate::kinds::ROWS && key.group() == first.group())
            .collect();
        let numbers: Vec<_> = keys.iter().map(|key| key.number).collect();
        let source = self.source.clone();
        let load = async move |numbers: Vec<u64>| {
            let keys = numbers.iter().map(|number| RowKey { number: *number, ..first }).collect();
            let rows = source.load_many(keys).await?;
            Ok::<_, SourceDown>(rows.into_iter().map(Ok).collect::<Vec<_>>())
        };
        let began: Vec<_> = keys.iter().map(|key| self.checker.begin(*key, store)).collect();
        let answers =
            self.caches.of(store, first).get_or_load_many(numbers, load).with_status().await;
        self.checker.count("batches");
        for (began, (answer, status)) in began.iter().zip(answers) {
            let answered = Answered { answer, status: Some(status), at_once: false, limit: None };
            self.checker.end(began, &answered, counts);
        }
    }
}

/// Mostly those whose copies live long.
fn near_kind(rng: &mut StdRng) -> Kind {
    match rng.random_range(0..1_000) {
        0..400 => Kind::Long,
        400..620 => Kind::Tagged,
        620..790 => Kind::Labelled,
        790..950 => Kind::Put,
        950..985 => Kind::Soft,
        985..997 => Kind::Early,
        _ => Kind::Short,
    }
}

fn kind(rng: &mut StdRng) -> Kind {
    crate::kinds::CHANGING[rng.random_range(0..crate::kinds::CHANGING.len())]
}
