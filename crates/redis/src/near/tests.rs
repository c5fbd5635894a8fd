//! Tests of the near tier alone: what it keeps, and for how long.

mod slots;
mod tags;
mod unwatched;

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, advance};

use super::*;
use bellwether::Lifetimes;
use bellwether::codec::{Codec, Compressed, EncodeBuffer, Json};
use bellwether::store::{Draft, Value};

const SECOND: Duration = Duration::from_secs(1);

/// Longer than a test takes, for tests that are not about silence.
const EVER: Duration = Duration::from_secs(3600);

fn one_server() -> Arc<SlotOwners> {
    Arc::new(SlotOwners::new(false))
}

fn near() -> Near {
    silent_for(EVER)
}

/// A near tier with tracking connection 1, which may be silent for this long.
fn silent_for(silence: Duration) -> Near {
    let near = Near::new(1024 * 1024, 30 * SECOND, silence, one_server());
    connect(&near, 0, 1, Instant::now(), &|| false);
    near
}

fn connect(
    near: &Near,
    node: u16,
    connection: u64,
    sent_at: Instant,
    is_broken: &dyn Fn() -> bool,
) {
    near.note(ServerEvent::Connected { node, connection, sent_at, is_broken });
}

fn confirm(near: &Near, node: u16, connection: u64, sent_at: Instant) {
    near.note(ServerEvent::Confirmed { node, connection, sent_at });
}

fn disconnect(near: &Near, node: u16, connection: u64) {
    near.note(ServerEvent::Disconnected { node, connection });
}

fn key(number: u64) -> Key {
    Key::of("item").with(number).digested()
}

fn entry(version: u64, bytes: usize, life: Duration) -> Entry {
    let draft = Draft::new(Value::new(vec![0; bytes].into()), 1, Lifetimes::fresh_for(life));
    draft.into_entry(version, 0, Some(life), Vec::new())
}

fn keep(near: &Near, number: u64, life: Duration) -> bool {
    let start = near.start_read(&key(number).digest());
    start.is_some_and(|start| near.keep(start, vec![], &key(number), &entry(1, 10, life)))
}

/// A key on the server, a process that copies it, and the messages between them.
#[derive(Default)]
struct NearModel {
    connection: u64,
    version: u64,
    tracked: bool,
    pushes: VecDeque<u64>,
    /// Sent over a connection, but not yet read by the server.
    requests: Vec<(u64, ReadStart)>,
    /// Each with the version that the server read.
    answers: Vec<(u64, ReadStart)>,
    /// Older versions must not be served any more.
    least_version: u64,
}

impl NearModel {
    fn step(&mut self, near: &Near, key: &Key, rng: &mut StdRng) {
        match rng.random_range(0..9) {
            0 => self
                .requests
                .extend(near.start_read(&key.digest()).map(|start| (self.connection, start))),
            1 | 2 => self.read(rng),
            // A push message overtakes replies, because the receiving task handles it at once.
            3 | 4 if !self.answers.is_empty() => {
                let at = rng.random_range(0..self.answers.len());
                let (version, start) = self.answers.swap_remove(at);
                near.keep(start, vec![], key, &entry(version, 10, 60 * SECOND));
            }
            5 => self.change(),
            6 => {
                if let Some(version) = self.pushes.pop_front() {
                    near.epochs.change(&key.digest());
                    self.least_version = self.least_version.max(version);
                }
            }
            7 if rng.random_ratio(1, 5) => {
                self.change();
                near.epochs.change(&key.digest());
                self.least_version = self.version;
            }
            8 if rng.random_ratio(1, 5) => self.reconnect(near, key, rng),
            _ => {}
        }
    }

    fn read(&mut self, rng: &mut StdRng) {
        if !self.requests.is_empty() {
            let at = rng.random_range(0..self.requests.len());
            let (connection, start) = self.requests.swap_remove(at);
            self.tracked |= connection == self.connection;
            self.answers.push((self.version, start));
        }
    }

    fn change(&mut self) {
        self.version += 1;
        if std::mem::take(&mut self.tracked) {
            self.pushes.push_back(self.version);
        }
    }

    /// Push messages are lost. Requests may still be answered, late.
    fn reconnect(&mut self, near: &Near, key: &Key, rng: &mut StdRng) {
        disconnect(near, 0, self.connection);
        assert!(near.find(key).is_none());
        self.pushes.clear();
        self.tracked = false;
        if rng.random() {
            self.change();
        }
        self.connection += 1;
        connect(near, 0, self.connection, Instant::now(), &|| false);
        self.least_version = self.version;
    }
}

#[test]
fn no_order_of_events_gives_out_a_copy_after_its_change_was_reported() {
    let mut found = 0;
    let mut none = 0;
    for seed in 0..10_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let near = Near::new(64 * 1024, 30 * SECOND, EVER, one_server());
        let key = key(seed);
        let mut model = NearModel::default();
        connect(&near, 0, model.connection, Instant::now(), &|| false);
        for _ in 0..rng.random_range(10..60) {
            model.step(&near, &key, &mut rng);
            match near.find(&key) {
                Some(copy) => {
                    assert!(copy.fence() >= model.least_version, "seed {seed}: {copy:?}");
                    found += 1;
                }
                None => none += 1,
            }
        }
    }
    assert!(found > 10_000 && none > 10_000, "{found} found, {none} not");
}

#[tokio::test(start_paused = true)]
async fn a_copy_counts_down_and_ends_with_its_entry() {
    let near = near();
    let start = near.start_read(&key(1).digest()).expect("it is connected");
    // The reply takes a second, and that does not prolong the entry.
    advance(SECOND).await;
    assert!(near.keep(start, vec![], &key(1), &entry(1, 10, 10 * SECOND)));
    advance(8 * SECOND).await;
    let left = near.find(&key(1)).map(|copy| copy.remaining());
    assert_eq!(left, Some(Some(SECOND)));
    advance(SECOND).await;
    assert!(near.find(&key(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_asked_about_again_after_its_ttl() {
    let near = near();
    assert!(keep(&near, 1, 100 * SECOND));
    advance(29 * SECOND).await;
    let left = near.find(&key(1)).map(|copy| copy.remaining());
    assert_eq!(left, Some(Some(71 * SECOND)));
    advance(SECOND).await;
    assert!(near.find(&key(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_given_out_only_if_its_connection_has_answered_in_time() {
    let near = silent_for(2 * SECOND);
    assert!(keep(&near, 1, 20 * SECOND));
    advance(SECOND).await;
    let sent_at = Instant::now();
    advance(SECOND).await;
    assert!(near.find(&key(1)).is_none(), "the connection was silent for two seconds");
    confirm(&near, 0, 1, sent_at);
    assert!(near.find(&key(1)).is_some(), "it was alive a second ago");
    advance(SECOND).await;
    assert!(near.find(&key(1)).is_none(), "a reply confirms nothing that came later");
    // A reply that arrives late.
    confirm(&near, 0, 1, sent_at);
    assert!(near.find(&key(1)).is_none());
    confirm(&near, 0, 1, Instant::now());
    assert!(near.find(&key(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_another_connection_confirms_nothing() {
    let near = silent_for(2 * SECOND);
    connect(&near, 0, 2, Instant::now(), &|| false);
    assert!(keep(&near, 1, 20 * SECOND));
    advance(2 * SECOND).await;
    for connection in [1, 3] {
        confirm(&near, 0, connection, Instant::now());
        assert!(near.find(&key(1)).is_none());
    }
    confirm(&near, 0, 2, Instant::now());
    assert!(near.find(&key(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_tracked_connection_has_no_part_in_what_its_predecessor_answered() {
    let near = silent_for(2 * SECOND);
    let tracked_at = Instant::now();
    advance(SECOND).await;
    confirm(&near, 0, 1, Instant::now());
    connect(&near, 0, 2, tracked_at, &|| false);
    assert!(keep(&near, 1, 20 * SECOND));
    advance(SECOND).await;
    assert!(near.find(&key(1)).is_none());
}

#[test]
fn nothing_is_kept_without_a_tracking_connection() {
    let near = near();
    let start = near.start_read(&key(1).digest()).expect("it is connected");
    disconnect(&near, 0, 1);
    assert!(!near.keep(start, vec![], &key(1), &entry(1, 10, SECOND)));
    assert!(!keep(&near, 1, SECOND));
    connect(&near, 0, 2, Instant::now(), &|| true);
    assert!(!keep(&near, 1, SECOND), "the connection broke while it was made");
}

#[test]
fn the_end_of_an_older_connection_is_not_the_end_of_this_one() {
    let near = near();
    connect(&near, 0, 2, Instant::now(), &|| false);
    assert!(keep(&near, 1, SECOND));
    disconnect(&near, 0, 1);
    assert!(near.find(&key(1)).is_some());
}

#[test]
fn a_change_of_everything_leaves_no_copy_and_the_connection_in_use() {
    let near = near();
    assert!(keep(&near, 1, SECOND));
    let start = near.start_read(&key(2).digest()).expect("it is connected");
    near.note(ServerEvent::AllChanged { node: 0 });
    assert!(near.find(&key(1)).is_none());
    assert!(!near.keep(start, vec![], &key(2), &entry(1, 10, SECOND)));
    assert!(keep(&near, 1, SECOND) && near.find(&key(1)).is_some());
}

#[test]
fn a_hundred_thousand_copies_keep_within_their_bytes() {
    let near = near();
    for number in 0..100_000 {
        let start = near.start_read(&key(number).digest()).expect("it is connected");
        let bytes = (number % 700) as usize;
        near.keep(start, vec![], &key(number), &entry(1, bytes, SECOND));
        assert!(near.copies.weight() <= near.copies.capacity());
    }
    assert!(near.copies.capacity() <= 1024 * 1024 && near.copies.weight() > 900_000);
}

#[test]
fn copies_of_compressed_values_keep_within_their_bytes_when_they_are_decoded() {
    let (near, mut buffer) = (near(), EncodeBuffer::new(usize::MAX));
    let (text, codec) = ("a".repeat(100_000), Compressed::new(Json::default()));
    codec.encode(&text, &mut buffer).expect("a text");
    let (value, id) = (Value::new(buffer.into_bytes()), Codec::<String>::id(&codec));
    let draft = Draft::new(value, id, Lifetimes::fresh_for(SECOND));
    let entry = draft.into_entry(1, 0, Some(SECOND), Vec::new());
    for number in 0..100 {
        let start = near.start_read(&key(number).digest()).expect("it is connected");
        near.keep(start, vec![], &key(number), &entry);
    }
    let copies = near.copies.len();
    assert!((1..=10).contains(&copies), "{copies} texts of 100 kB in 1 MiB");
}

#[tokio::test]
async fn an_emptied_near_tier_has_no_copies() {
    let near = near();
    for number in 0..1000 {
        assert!(keep(&near, number, SECOND));
    }
    near.empty().await;
    assert!(near.copies.is_empty() && near.find(&key(1)).is_none());
}
