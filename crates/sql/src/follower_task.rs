//! `FollowerTask`: what a follower does, round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bellwether::StoreError;
use bellwether::adapter::warn_throttled;
use sqlx::Database;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::batch::{ChangeBatch, Kinds, reached as has};
use super::dialect::Dialect;
use super::listener::Listener;
use super::settings::FollowerSettings;
use super::stats::FollowerCounters;
use super::stores::{FollowedStores, Reached};
use super::table::{BATCH, ChangeRow};

/// Takes rows, applies them, and notes that, until it is stopped.
#[derive(Debug)]
pub(crate) struct FollowerTask<D: Database> {
    settings: FollowerSettings<D>,
    counters: Arc<FollowerCounters>,
    /// How often each store, by its place, had connected before all retained rows were applied to it again.
    connects: BTreeMap<i32, u64>,
    /// Names that were reported as unknown.
    unknown: BTreeSet<String>,
    deletes_at: Instant,
    registers_at: Instant,
}

/// What came of one batch.
struct AppliedRows {
    /// How far it went.
    last: i64,
    taken: usize,
    /// Whether a store took anything.
    has_succeeded: bool,
}

/// The stores that now have rows that others do not have yet, and those rows.
fn partly_applied(
    rows: &[ChangeRow],
    failed: &BTreeMap<usize, BTreeSet<i32>>,
    stores: &FollowedStores,
) -> BTreeMap<Vec<i32>, Vec<i64>> {
    let mut partly = BTreeMap::<_, Vec<_>>::new();
    for (at, failed) in failed {
        let row = &rows[*at];
        let reached: Vec<_> = stores.places().filter(|place| !failed.contains(place)).collect();
        if reached.len() > has(row).count() {
            partly.entry(reached).or_default().push(row.id);
        }
    }
    partly
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
    pub(crate) fn new(settings: FollowerSettings<D>, counters: Arc<FollowerCounters>) -> Self {
        let now = Instant::now();
        Self {
            settings,
            counters,
            connects: BTreeMap::new(),
            unknown: BTreeSet::new(),
            deletes_at: now,
            registers_at: now + REGISTERS_EVERY,
        }
    }

    /// Works until the sender of `stopped` is dropped.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<()>) {
        let listener = Listener::start(&self.settings.table.pool, self.settings.listens);
        let (mut woken, mut pause) = (false, PAUSES.0);
        let mut looks = LOOKS.0;
        while stopped.has_changed().is_ok() {
            let round = self.round(woken).await.unwrap_or_else(|error| {
                self.counters.note(|stats| stats.database_errors += 1);
                warn_throttled!(target: "bellwether::changes", error = %error, "the table of changes cannot be read");
                Round::Failed
            });
            // With rows that cannot be applied, a message says nothing new.
            let wait = match round {
                Round::Failed => {
                    let longer = (pause * 2).min(PAUSES.1);
                    mem::replace(&mut pause, longer)
                }
                Round::Idle | Round::Applied => {
                    pause = PAUSES.0;
                    self.settings.poll.unwrap_or_else(|| listener.poll())
                }
            };
            // If other followers were faster, this one looks less often.
            looks = match round {
                Round::Idle => (looks * 2).min(LOOKS.1),
                Round::Applied | Round::Failed => LOOKS.0,
            };
            let wakes = async {
                match round {
                    Round::Failed => std::future::pending().await,
                    Round::Idle => sleep(looks).await,
                    Round::Applied => {}
                }
                listener.woken().await;
            };
            woken = tokio::select! {
                () = wakes => true,
                () = sleep(wait) => false,
                _ = stopped.changed() => break,
            };
        }
    }

    /// Applies all that is pending, and does what is due. If no message woke it, it first looks whether anything is.
    async fn round(&mut self, woken: bool) -> Result<Round, sqlx::Error> {
        let table = &self.settings.table;
        if !woken {
            let (pending, oldest) = table.backlog().await?;
            self.counters.note(|stats| {
                stats.pending = pending;
                stats.oldest = Duration::try_from_secs_f64(oldest).unwrap_or_default();
            });
            if Instant::now() >= self.deletes_at {
                table.delete_old(self.settings.retain).await?;
                self.deletes_at =
                    Instant::now() + (self.settings.retain / 4).clamp(DELETES.0, DELETES.1);
            }
            if Instant::now() >= self.registers_at {
                table.register(&self.settings.kinds).await?;
                self.registers_at = Instant::now() + REGISTERS_EVERY;
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
        let FollowerSettings { table, stores, .. } = &self.settings;
        let mut transaction = table.begin().await?;
        let (rows, began) =
            (table.take(&mut transaction, above, has_reached).await?, Instant::now());
        let Some(last) = rows.last().map(|row| row.id) else { return Ok(None) };
        let kinds = Kinds::new(table.kinds(&mut transaction).await?);
        let ChangeBatch { wanted, dead, unknown } = ChangeBatch::new(&rows, &kinds, stores);
        let span = tracing::debug_span!(target: "bellwether::changes", "changes.apply", table = table.schema, rows = rows.len());
        let Reached { failed, succeeded, error } = stores.apply(wanted).instrument(span).await;
        let is_done = |at: &usize| !failed.contains_key(at) && !dead.contains_key(at);
        let done: Vec<_> = (0..rows.len()).filter(is_done).map(|at| &rows[at]).collect();
        let ids: Vec<_> = done.iter().map(|row| row.id).collect();
        if !ids.is_empty() {
            table.applied(&mut transaction, &ids).await?;
        }
        for (reached, ids) in partly_applied(&rows, &failed, stores) {
            table.reached(&mut transaction, &ids, &reached).await?;
        }
        if !dead.is_empty() {
            let dead: Vec<_> = dead.iter().map(|(at, why)| (rows[*at].id, why.clone())).collect();
            table.failed(&mut transaction, &dead).await?;
        }
        transaction.commit().await?;
        for row in done {
            let age = Duration::try_from_secs_f64(row.age).unwrap_or_default();
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
        if self.settings.retain.is_zero() {
            return Ok(());
        }
        for place in self.settings.stores.places() {
            let connects = self.settings.stores.connects(place).await;
            if self.connects.get(&place) != Some(&connects) && self.apply_again_to(place).await? {
                self.connects.insert(place, connects);
            }
        }
        Ok(())
    }

    /// Returns whether the store has taken it.
    async fn apply_again_to(&mut self, place: i32) -> Result<bool, sqlx::Error> {
        let FollowerSettings { table, stores, retain, .. } = &self.settings;
        let others = stores.places().filter(|other| *other != place);
        let others = others.map(|other| other.to_string()).collect::<Vec<_>>().join(",");
        let (mut after, until) = (table.time(*retain).await?, table.time(Duration::ZERO).await?);
        let mut id = 0;
        loop {
            let mut rows = table.applied_after((&after, id), &until).await?;
            let Some(last) = rows.last() else { return Ok(true) };
            (after, id) = (last.applied_at.clone().unwrap_or_default(), last.id);
            rows.iter_mut().for_each(|row| row.reached.clone_from(&others));
            let mut connection = table.pool.acquire().await?;
            let kinds = Kinds::new(table.kinds(&mut connection).await?);
            drop(connection);
            let wanted = ChangeBatch::new(&rows, &kinds, stores).wanted;
            let Reached { failed, error, .. } = stores.apply(wanted).await;
            if error.is_some() {
                self.tell(0, BTreeSet::new(), failed.len(), error);
                return Ok(false);
            }
            self.counters.note(|stats| stats.reapplied += rows.len() as u64);
        }
    }
}

/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The shortest time between two looks that messages cause and that find nothing, and the longest: with many
/// followers, each of them is woken for each row.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// How often old rows are deleted, at most and at least.
const DELETES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// A follower that is not heard of for a day is forgotten.
const REGISTERS_EVERY: Duration = Duration::from_secs(60 * 60);

/// How many unknown names are reported, each once.
const MOST_NAMES: usize = 1_000;
