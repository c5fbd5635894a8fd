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
    /// How often each store, by its place, had connected before it was begun to apply retained rows to it again.
    opened: BTreeMap<usize, u64>,
    /// Those that are left.
    again: BTreeMap<usize, RetainedRows>,
    /// How far it has gone through the pending rows that no store has, and through those that some have.
    above: [i64; 2],
    /// Names that were reported as unknown.
    unknown: BTreeSet<String>,
    deletes_at: Instant,
    registers_at: Instant,
    /// The time between its last registration and that one.
    registers_after: Duration,
}

/// Rows that were applied after this one, up to a time.
#[derive(Debug)]
struct RetainedRows {
    after: String,
    id: i64,
    until: String,
}

/// What came of a round, or of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    /// No row was pending, or others have taken all.
    Idle,
    /// Rows were applied, at least to some stores.
    Applied,
    /// The same, and more is to be done.
    Unfinished,
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
            opened: BTreeMap::new(),
            again: BTreeMap::new(),
            above: [0; 2],
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
                Round::Unfinished => Duration::ZERO,
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
                    Round::Applied | Round::Unfinished => {}
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

    /// Applies what is pending. A full round first looks whether anything is, and does what is due. Each has its turn, so
    /// that nothing waits for the end of a backlog.
    async fn round(&mut self, is_full: bool) -> Result<Round, sqlx::Error> {
        let mut is_left = false;
        if is_full {
            let table = &self.table;
            let (pending, oldest) = table.backlog().await?;
            self.counters.note(|stats| {
                stats.pending = pending;
                stats.oldest = Duration::try_from_secs_f64(oldest).unwrap_or_default();
            });
            if Instant::now() >= self.deletes_at {
                is_left = table.delete_old(self.retain).await?;
                if !is_left {
                    let pause = (self.retain / 4).clamp(DELETES.0, DELETES.1);
                    self.deletes_at = Instant::now() + pause;
                }
            }
            if Instant::now() >= self.registers_at {
                table.register(&self.kinds).await?;
                self.registers_after = (self.registers_after * 2).min(REGISTERS.1);
                self.registers_at = Instant::now() + self.registers_after;
            }
            is_left |= self.apply_again().await?;
            if pending == 0 {
                return Ok(if is_left { Round::Unfinished } else { Round::Idle });
            }
            // What one store lacks holds up no other.
            is_left |= self.apply_pending(true).await? == Round::Unfinished;
        }
        let round = self.apply_pending(false).await?;
        Ok(if is_left { round.max(Round::Unfinished) } else { round })
    }

    /// Goes on through the pending rows that some stores have, or that none has, oldest first.
    async fn apply_pending(&mut self, has_reached: bool) -> Result<Round, sqlx::Error> {
        // Rows of long transactions may be below those that were applied.
        self.above[0] = 0;
        let until = Instant::now() + TURN;
        loop {
            let round = self.apply_batch(has_reached).await?;
            if round != Round::Unfinished || Instant::now() >= until {
                return Ok(round);
            }
        }
    }

    /// Applies the next ones.
    async fn apply_batch(&mut self, has_reached: bool) -> Result<Round, sqlx::Error> {
        let above = std::mem::take(&mut self.above[usize::from(has_reached)]);
        let Self { table, stores, .. } = &*self;
        let mut transaction = table.begin().await?;
        let (rows, began) =
            (table.take(&mut transaction, above, has_reached).await?, Instant::now());
        let Some(last) = rows.last().map(|row| row.id) else { return Ok(Round::Idle) };
        let ChangeBatch { wanted, dead, unknown } = ChangeBatch::new(&rows, stores);
        let span = tracing::debug_span!(target: "bellwether::changes", "changes.apply", table = table.schema, rows = rows.len());
        let Reached { failed, succeeded, error } = stores.apply(wanted).instrument(span).await;
        let (mut applied, mut ages, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            let id = row.id;
            if let Some(failed) = failed.get(&at) {
                // One that no store has taken, beside others, waits among those that some have, too.
                let reached = list(stores.places().filter(|it| !failed.contains(it)));
                if succeeded > 0 && reached != row.reached {
                    others.push(RowNote { id, reached: Some(reached), failure: None });
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
        // If all have failed, so would those that follow, unless they lack another store.
        let has_failed = succeeded == 0 && !failed.is_empty();
        if rows.len() == BATCH && (has_reached || !has_failed) {
            self.above[usize::from(has_reached)] = last;
        }
        Ok(match rows.len() {
            _ if has_failed => Round::Failed,
            BATCH => Round::Unfinished,
            _ => Round::Applied,
        })
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
            // The table has forgotten what this follower has, as that of an old backup does.
            if self.kinds.iter().any(|(known, _)| *known == name) {
                self.registers_at = Instant::now();
            } else if self.unknown.len() < MOST_NAMES && self.unknown.insert(name.clone()) {
                tracing::warn!(target: "bellwether::changes", cache = name, "no follower has this cache");
            }
        }
    }

    /// If a store has connected since, or this is the beginning, applies to it again what was applied lately: a failover
    /// may have lost it. Returns whether more of it is left. What fails is tried again in the next round.
    async fn apply_again(&mut self) -> Result<bool, sqlx::Error> {
        let (mut is_left, retains) = (false, !self.retain.is_zero());
        for place in self.stores.places().filter(|_| retains) {
            // If that grows, a server may have lost what it had acknowledged.
            let opened = self.stores.0[place].opened().await;
            if self.opened.get(&place) != Some(&opened) {
                let (after, until) = self.table.times(self.retain).await?;
                self.again.insert(place, RetainedRows { after, id: 0, until });
                self.opened.insert(place, opened);
            }
            is_left |= self.apply_again_to(place).await?;
        }
        Ok(is_left)
    }

    /// Returns whether the store takes it, and more is left.
    async fn apply_again_to(&mut self, place: usize) -> Result<bool, sqlx::Error> {
        let others = list(self.stores.places().filter(|other| *other != place));
        let until = Instant::now() + TURN;
        while let Some(left) = self.again.get_mut(&place) {
            if Instant::now() >= until {
                return Ok(true);
            }
            let mut rows = self.table.applied_after((&left.after, left.id), &left.until).await?;
            let Some(last) = rows.last() else {
                self.again.remove(&place);
                break;
            };
            let (after, id) = (last.applied_at.clone().unwrap_or_default(), last.id);
            rows.iter_mut().for_each(|row| row.reached.clone_from(&others));
            let wanted = ChangeBatch::new(&rows, &self.stores).wanted;
            let Reached { failed, error, .. } = self.stores.apply(wanted).await;
            if error.is_some() {
                self.tell(0, BTreeSet::new(), failed.len(), error);
                break;
            }
            (left.after, left.id) = (after, id);
            self.counters.note(|stats| stats.reapplied += rows.len() as u64);
        }
        Ok(false)
    }
}

/// Places of stores as a text that is not empty, with commas between.
fn list(places: impl Iterator<Item = usize>) -> String {
    let places = places.map(|place| place.to_string());
    places.reduce(|all, place| all + "," + &place).unwrap_or_else(|| ",".to_owned())
}

/// How long a round does one thing at most, if more is left.
const TURN: Duration = Duration::from_millis(250);

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
