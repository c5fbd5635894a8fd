//! `FollowerTask`: what a follower does, round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bellwether::StoreError;
use bellwether::adapter::warn_throttled;
use bellwether_redis::RedisStore;
use sqlx::{Database, Pool};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::batch::ChangeBatch;
use super::dialect::Dialect;
use super::stats::FollowerCounters;
use super::stores::{FollowedStores, Reached};
use super::table::{BATCH, ChangeTable, RETAIN, RowNote};

/// Takes rows, applies them, and notes that, until it is stopped.
#[derive(Debug)]
pub(crate) struct FollowerTask<D: Database> {
    pub(crate) table: ChangeTable<D>,
    pub(crate) stores: FollowedStores,
    /// What rows call a cache, and the kind of its keys.
    pub(crate) kinds: Vec<(String, String)>,
    pub(crate) poll: Option<Duration>,
    pub(crate) listens: bool,
    pub(crate) retain: Duration,
    pub(crate) counters: Arc<FollowerCounters>,
    /// How often each store, by its place, had connected before all retained rows were applied to it again.
    connects: BTreeMap<usize, u64>,
    /// Names that were reported as unknown.
    unknown: BTreeSet<String>,
    deletes_at: Instant,
    registers_at: Instant,
    /// The time between its last registration and that one.
    registers_after: Duration,
}

/// What came of one batch.
struct AppliedRows {
    /// How far it went.
    last: i64,
    taken: usize,
    /// Whether a store took anything.
    has_succeeded: bool,
}

/// What came of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Rows were applied, at least to some stores.
    Applied,
    /// No row was pending, or others have taken all.
    Idle,
    /// No store takes rows, or the database has failed.
    Failed,
}

impl<D: Dialect> FollowerTask<D> {
    pub(crate) fn new(pool: Pool<D>, store: RedisStore) -> Self {
        let now = Instant::now();
        Self {
            table: ChangeTable::new(pool),
            stores: FollowedStores(vec![store]),
            kinds: Vec::new(),
            poll: None,
            listens: true,
            retain: RETAIN,
            counters: Arc::default(),
            connects: BTreeMap::new(),
            unknown: BTreeSet::new(),
            deletes_at: now,
            registers_at: now + REGISTERS.0,
            registers_after: REGISTERS.0,
        }
    }

    /// Works until the sender of `stopped` is dropped.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<()>) {
        let (heard, mut hears) = watch::channel(false);
        let mut listening = JoinSet::new();
        if self.listens {
            let heard = heard.clone();
            let tell = move |is_told| _ = heard.send_replace(is_told);
            listening.spawn(D::listen(&self.table.pool, tell));
        }
        let (mut pause, mut looks) = (PAUSES.0, LOOKS.0);
        // When the last full round was, and how long after it the next one is due.
        let (mut full_at, mut wait) = (Instant::now(), Duration::ZERO);
        while stopped.has_changed().is_ok() {
            let is_full = full_at.elapsed() >= wait;
            let round = self.round(is_full).await.unwrap_or_else(|error| {
                self.counters.note(|stats| stats.database_errors += 1);
                warn_throttled!(target: "bellwether::changes", error = %error, "the table of changes cannot be read");
                Round::Failed
            });
            let poll = if *hears.borrow() { POLLS.1 } else { POLLS.0 };
            wait = match round {
                Round::Failed => pause,
                Round::Idle | Round::Applied => self.poll.unwrap_or(poll),
            };
            if is_full || round == Round::Failed {
                full_at = Instant::now();
            }
            let wakes = async {
                match round {
                    // With rows that cannot be applied, a message says nothing new.
                    Round::Failed => std::future::pending().await,
                    // If other followers were faster, this one looks less often.
                    Round::Idle => sleep(looks).await,
                    Round::Applied => {}
                }
                hears.changed().await
            };
            tokio::select! {
                _ = wakes => {}
                () = sleep(wait.saturating_sub(full_at.elapsed())) => {}
                _ = stopped.changed() => break,
            }
            pause = if round == Round::Failed { (pause * 2).min(PAUSES.1) } else { PAUSES.0 };
            looks = if round == Round::Idle { (looks * 2).min(LOOKS.1) } else { LOOKS.0 };
        }
    }

    /// Applies all that is pending. A full round first looks whether anything is, and does what is due.
    async fn round(&mut self, is_full: bool) -> Result<Round, sqlx::Error> {
        let table = &self.table;
        if is_full {
            let (pending, oldest) = table.backlog().await?;
            self.counters.note(|stats| {
                stats.pending = pending;
                stats.oldest = Duration::try_from_secs_f64(oldest).unwrap_or_default();
            });
            if Instant::now() >= self.deletes_at {
                table.delete_old(self.retain).await?;
                self.deletes_at = Instant::now() + (self.retain / 4).clamp(DELETES.0, DELETES.1);
            }
            if Instant::now() >= self.registers_at {
                table.register(&self.kinds).await?;
                self.registers_after = (self.registers_after * 2).min(REGISTERS.1);
                self.registers_at = Instant::now() + self.registers_after;
            }
            self.apply_again().await?;
            if pending == 0 {
                return Ok(Round::Idle);
            }
            // What one store lacks holds up no other.
            self.apply_pending(true).await?;
        }
        self.apply_pending(false).await
    }

    /// Goes once through the pending rows that some stores have, or that none has, oldest first.
    async fn apply_pending(&mut self, has_reached: bool) -> Result<Round, sqlx::Error> {
        let (mut above, mut round) = (0, Round::Idle);
        while let Some(applied) = self.apply_batch(above, has_reached).await? {
            above = applied.last;
            // If all have failed, so would those that follow.
            if !applied.has_succeeded {
                return Ok(Round::Failed);
            }
            round = Round::Applied;
            if applied.taken < BATCH {
                break;
            }
        }
        Ok(round)
    }

    /// Applies the oldest pending rows above an id. `None` if there are none.
    async fn apply_batch(
        &mut self,
        above: i64,
        has_reached: bool,
    ) -> Result<Option<AppliedRows>, sqlx::Error> {
        let Self { table, stores, .. } = &*self;
        let mut transaction = table.begin().await?;
        let (rows, began) =
            (table.take(&mut transaction, above, has_reached).await?, Instant::now());
        let Some(last) = rows.last().map(|row| row.id) else { return Ok(None) };
        let ChangeBatch { wanted, dead, unknown } = ChangeBatch::new(&rows, stores);
        let span = tracing::debug_span!(target: "bellwether::changes", "changes.apply", table = table.schema, rows = rows.len());
        let Reached { failed, succeeded, error } = stores.apply(wanted).instrument(span).await;
        let (mut applied, mut ages, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            let id = row.id;
            if let Some(failed) = failed.get(&at) {
                let places: Vec<_> = stores.places().filter(|it| !failed.contains(it)).collect();
                if places.iter().any(|place| !row.has_reached(*place)) {
                    others.push(RowNote { id, reached: Some(list(places)), failure: None });
                }
            } else if let Some(why) = dead.get(&at) {
                others.push(RowNote { id, reached: None, failure: Some(why.clone()) });
            } else {
                applied.push(id);
                ages.push(row.age);
            }
        }
        table.settle(&mut transaction, &applied, &others).await?;
        transaction.commit().await?;
        for age in ages {
            let age = Duration::try_from_secs_f64(age).unwrap_or_default();
            self.counters.applied(age + began.elapsed());
        }
        self.tell(dead.len(), unknown, failed.len(), error);
        let has_succeeded = succeeded > 0 || failed.is_empty();
        Ok(Some(AppliedRows { last, taken: rows.len(), has_succeeded }))
    }

    /// Counts and logs what could not be applied: never, or not yet.
    fn tell(
        &mut self,
        dead: usize,
        unknown: BTreeSet<String>,
        failed: usize,
        error: Option<StoreError>,
    ) {
        self.counters.note(|stats| {
            stats.dead += dead as u64;
            stats.store_errors += u64::from(error.is_some());
        });
        if let Some(error) = error {
            warn_throttled!(target: "bellwether::changes", error = %error, rows = failed, "changes wait for a store");
        }
        for name in unknown {
            if self.unknown.len() < MOST_NAMES && self.unknown.insert(name.clone()) {
                tracing::warn!(target: "bellwether::changes", cache = name, "no follower has this cache");
            }
        }
    }

    /// If a store has connected since, or this is the beginning, applies to it again what was applied lately: a failover
    /// may have lost it. What fails is tried again in the next round.
    async fn apply_again(&mut self) -> Result<(), sqlx::Error> {
        if self.retain.is_zero() {
            return Ok(());
        }
        for place in self.stores.places() {
            // If that grows, a server may have lost what it had acknowledged.
            let connects = self.stores.0[place].connects().await;
            if self.connects.get(&place) != Some(&connects) && self.apply_again_to(place).await? {
                self.connects.insert(place, connects);
            }
        }
        Ok(())
    }

    /// Returns whether the store has taken it.
    async fn apply_again_to(&mut self, place: usize) -> Result<bool, sqlx::Error> {
        let Self { table, stores, retain, .. } = &*self;
        let others = list(stores.places().filter(|other| *other != place));
        let ((mut after, until), mut id) = (table.times(*retain).await?, 0);
        loop {
            let mut rows = table.applied_after((&after, id), &until).await?;
            let Some(last) = rows.last() else { return Ok(true) };
            (after, id) = (last.applied_at.clone().unwrap_or_default(), last.id);
            rows.iter_mut().for_each(|row| row.reached.clone_from(&others));
            let wanted = ChangeBatch::new(&rows, stores).wanted;
            let Reached { failed, error, .. } = stores.apply(wanted).await;
            if error.is_some() {
                self.tell(0, BTreeSet::new(), failed.len(), error);
                return Ok(false);
            }
            self.counters.note(|stats| stats.reapplied += rows.len() as u64);
        }
    }
}

/// Places of stores as a text, with commas between.
fn list(places: impl IntoIterator<Item = usize>) -> String {
    places.into_iter().map(|place| place.to_string()).collect::<Vec<_>>().join(",")
}

/// How often the table is read if the database does not tell of rows, and if it does.
const POLLS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The shortest time between two looks that messages cause and that find nothing, and the longest: with many
/// followers, each of them is woken for each row.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// How often old rows are deleted, at most and at least.
const DELETES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// How often a follower says what it has: first soon after its start, since others may still give up rows that they had
/// taken before it, and then ever less often. One that is not heard of for a day is forgotten.
const REGISTERS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// How many unknown names are reported, each once.
const MOST_NAMES: usize = 1_000;
