//! Copies with tags, whose reports may be about tags that have not changed.

use std::collections::VecDeque;
use std::mem::take;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::super::{Near, ReadStart, Version};
use super::{EVER, SECOND, connect, disconnect, key, near, one_server};
use bellwether::store::{Digest, Draft, Entry, TagEpoch, Value};
use bellwether::{Lifetimes, Tag};
use bellwether_redis_client::{ServerEvent, ServerObserver};

fn tag() -> Digest {
    Tag::of("shelf").digest()
}

fn state(hard: u64, soft: u64) -> TagEpoch {
    TagEpoch { tag: tag(), hard, soft }
}

fn entry(loaded: TagEpoch) -> Entry {
    let draft = Draft::new(Value::new(vec![].into()), 1, Lifetimes::fresh_for(60 * SECOND));
    draft.into_entry(1, 0, Some(60 * SECOND), vec![loaded])
}

/// A lookup of a key, which reads the tag with it.
fn look_up(near: &Near, number: u64, read: TagEpoch) {
    let start = near.start_read(&key(number).digest()).expect("it is connected");
    let version = near.epochs.tag_version(&tag()).expect("it is connected");
    near.epochs.note_tag(&version, &read);
    assert!(near.keep(start, vec![version], &key(number), &entry(read)));
}

fn report(near: &Near) {
    near.note(ServerEvent::TagChanged(&tag()));
}

#[test]
fn copies_of_a_reported_tag_are_served_again_after_one_lookup_has_found_it_unchanged() {
    let near = near();
    (1..=3).for_each(|number| look_up(&near, number, state(1, 1)));
    for _ in 0..3 {
        report(&near);
        assert!((1..=3).all(|number| near.find(&key(number)).is_none()));
        look_up(&near, 1, state(1, 1));
        assert!((1..=3).all(|number| near.find(&key(number)).is_some()));
    }
}

#[test]
fn a_reported_tag_that_is_found_in_another_state_ends_its_copies() {
    for changed in [state(2, 2), state(1, 2), state(2, 1)] {
        let near = near();
        look_up(&near, 1, state(1, 1));
        report(&near);
        look_up(&near, 2, changed);
        assert!(near.find(&key(1)).is_none() && near.find(&key(2)).is_some());
    }
}

#[test]
fn a_tag_that_was_read_before_its_report_confirms_no_copy() {
    let near = near();
    report(&near);
    look_up(&near, 1, state(1, 1));
    let version = near.epochs.tag_version(&tag()).expect("it is connected");
    report(&near);
    near.epochs.note_tag(&version, &state(1, 1));
    assert!(near.find(&key(1)).is_none());
}

#[test]
fn a_tag_that_was_read_over_another_connection_confirms_no_copy() {
    let near = near();
    look_up(&near, 1, state(1, 1));
    report(&near);
    connect(&near, 0, 2, Instant::now(), &|| false);
    look_up(&near, 2, state(1, 1));
    assert!(near.find(&key(1)).is_none() && near.find(&key(2)).is_some());
}

#[test]
fn reports_about_keys_end_no_copy_by_its_tags() {
    let near = near();
    look_up(&near, 1, state(1, 1));
    near.epochs.change(&tag());
    assert!(near.find(&key(1)).is_some());
}

/// The tag of an entry on the server, a process that copies the entry, and the messages between them.
#[derive(Default)]
struct TagModel {
    connection: u64,
    /// That of the tag, and the one under which the entry was loaded.
    epoch: u64,
    loaded: u64,
    is_tracked: bool,
    reports: VecDeque<u64>,
    /// Sent over a connection, but not yet read by the server.
    requests: Vec<(u64, ReadStart, Version)>,
    /// Each with the epochs of the tag and of the entry that the server read.
    answers: Vec<(ReadStart, Version, u64, u64)>,
    /// Copies of entries that were loaded before must not be served any more.
    least: u64,
}

impl TagModel {
    fn step(&mut self, near: &Near, rng: &mut StdRng) {
        match rng.random_range(0..12) {
            0 | 1 => {
                let start = near.start_read(&key(1).digest());
                let both = start.zip(near.epochs.tag_version(&tag()));
                self.requests.extend(both.map(|(start, tag)| (self.connection, start, tag)));
            }
            2..=4 if !self.requests.is_empty() => {
                let at = rng.random_range(0..self.requests.len());
                let (connection, start, version) = self.requests.swap_remove(at);
                self.is_tracked |= connection == self.connection;
                self.answers.push((start, version, self.epoch, self.loaded));
            }
            5..=7 if !self.answers.is_empty() => {
                let at = rng.random_range(0..self.answers.len());
                let (start, version, epoch, loaded) = self.answers.swap_remove(at);
                near.epochs.note_tag(&version, &state(epoch, epoch));
                if loaded == epoch {
                    near.keep(start, vec![version], &key(1), &entry(state(loaded, loaded)));
                }
            }
            8 => self.report(rng.random_ratio(1, 4)),
            9 | 10 => {
                if let Some(epoch) = self.reports.pop_front() {
                    report(near);
                    self.least = self.least.max(epoch);
                }
            }
            11 if rng.random_ratio(1, 5) => self.reconnect(near, rng),
            _ => self.loaded = self.epoch,
        }
    }

    /// The tag changes, or its row is dropped.
    fn report(&mut self, is_change: bool) {
        self.epoch += u64::from(is_change);
        if take(&mut self.is_tracked) {
            self.reports.push_back(self.epoch);
        }
    }

    /// Reports are lost. Requests may still be answered, late.
    fn reconnect(&mut self, near: &Near, rng: &mut StdRng) {
        disconnect(near, 0, self.connection);
        self.reports.clear();
        self.is_tracked = false;
        self.report(rng.random());
        self.connection += 1;
        connect(near, 0, self.connection, Instant::now(), &|| false);
        self.least = self.epoch;
    }
}

#[test]
fn no_order_of_events_gives_out_a_copy_after_the_change_of_its_tag_was_reported() {
    let (mut found, mut none) = (0, 0);
    for seed in 0..4_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let near = Near::new(64 * 1024, 30 * SECOND, EVER, one_server());
        let mut model = TagModel::default();
        connect(&near, 0, model.connection, Instant::now(), &|| false);
        for _ in 0..rng.random_range(10..80) {
            model.step(&near, &mut rng);
            match near.find(&key(1)) {
                Some(copy) => {
                    assert!(copy.epochs()[0].hard >= model.least, "seed {seed}: {copy:?}");
                    found += 1;
                }
                None => none += 1,
            }
        }
    }
    assert!(found > 10_000 && none > 10_000, "{found} found, {none} not");
}
