use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Digest, TagEpoch};
use bellwether_redis_client::SlotOwners;
use loom::sync::Mutex;
use loom::thread;
use tokio::time::Instant;

use super::epochs::{Epochs, Version};

/// A process that keeps copies of the one key of a server.
struct Stage {
    epochs: Epochs,
    key: Digest,
    /// The value that the server has. A read of it is a request and its reply.
    server: Mutex<u64>,
    /// Whether what changed the value has returned.
    returned: Mutex<bool>,
    began: Instant,
}

impl Stage {
    /// With a connection that has reported changes from the start.
    fn set() -> loom::sync::Arc<Self> {
        let began = Instant::now();
        let epochs = Epochs::new(1, SILENCE, Arc::new(SlotOwners::new(false)));
        epochs.connect(NODE, FIRST, began + 10 * SECOND, &|| false);
        let key = Key::of("item").with(1).digest();
        let (server, returned) = (Mutex::new(OLD), Mutex::new(false));
        loom::sync::Arc::new(Self { epochs, key, server, returned, began })
    }

    /// A lookup: its version, if changes are reported, and what it found.
    fn look_up(&self) -> Option<(Version, u64)> {
        let version = self.epochs.version(&self.key)?;
        Some((version, *self.server.lock().expect("a server")))
    }

    fn change(&self) {
        *self.server.lock().expect("a server") = NEW;
    }

    fn returns(&self) {
        *self.returned.lock().expect("a flag") = true;
    }

    fn has_returned(&self) -> bool {
        *self.returned.lock().expect("a flag")
    }

    /// Whether a copy is served so many seconds after the start.
    fn serves(&self, version: &Version, seconds: u32) -> bool {
        let since_birth = seconds * SECOND;
        self.epochs.is_valid(version, since_birth.as_nanos().try_into().expect("a moment"))
    }

    /// A connection reports changes from now on. It was asked to so many seconds after the start.
    fn connect(&self, connection: u64, seconds: u32) {
        self.epochs.connect(NODE, connection, self.began + seconds * SECOND, &|| false);
    }
}

/// A tag on the server, in the place of the key.
impl Stage {
    /// A lookup: the version of the tag, and what it found.
    fn look_up_tag(&self) -> (Version, TagEpoch) {
        let version = self.epochs.tag_version(&self.key).expect("reported changes");
        let epoch = *self.server.lock().expect("a server");
        let state = TagEpoch { tag: self.key, hard: epoch, soft: epoch };
        self.epochs.note_tag(&version, &state);
        (version, state)
    }

    fn serves_by_tag(&self, (version, loaded): &(Version, TagEpoch)) -> bool {
        let since_birth = (11 * SECOND).as_nanos().try_into().expect("a moment");
        self.epochs.is_tag_valid(version, loaded, since_birth)
    }
}

/// The server has dropped the tag from its tracking table, and then the tag changes.
#[test]
fn a_copy_of_a_reported_tag_is_not_served_again_once_a_change_of_the_tag_is_reported() {
    loom::model(|| {
        let stage = Stage::set();
        let copy = stage.look_up_tag();
        stage.epochs.change_tag(&stage.key);
        assert!(!stage.serves_by_tag(&copy));
        let changes = stage.clone();
        let change = thread::spawn(move || {
            changes.change();
            changes.epochs.change_tag(&changes.key);
            changes.returns();
        });
        let reads = stage.clone();
        let read = thread::spawn(move || {
            reads.look_up_tag();
        });
        let has_returned = stage.has_returned();
        assert!(!(has_returned && stage.serves_by_tag(&copy)));
        [change, read].into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(!stage.serves_by_tag(&copy));
        let (_, latest) = stage.look_up_tag();
        assert!(latest.hard == NEW && !stage.serves_by_tag(&copy));
    });
}

#[test]
fn a_copy_of_a_reported_tag_is_served_again_by_any_thread_after_a_read_of_the_tag() {
    loom::model(|| {
        let stage = Stage::set();
        let copy = stage.look_up_tag();
        let reads = stage.clone();
        let read = thread::spawn(move || {
            reads.epochs.change_tag(&reads.key);
            reads.look_up_tag();
            reads.returns();
        });
        assert!(!stage.has_returned() || stage.serves_by_tag(&copy));
        read.join().expect("no panic");
        assert!(stage.serves_by_tag(&copy));
    });
}

#[test]
fn a_copy_is_not_served_once_its_change_is_reported() {
    no_copy_outlives_a_report(|stage| stage.epochs.change(&stage.key));
}

#[test]
fn a_copy_is_not_served_once_unknown_keys_have_changed() {
    no_copy_outlives_a_report(|stage| stage.epochs.change_everything());
}

fn no_copy_outlives_a_report(report: fn(&Stage)) {
    loom::model(move || {
        let stage = Stage::set();
        let changes = stage.clone();
        let change = thread::spawn(move || {
            changes.change();
            report(&changes);
            changes.returns();
        });
        let found = stage.look_up();
        let has_returned = stage.has_returned();
        if let Some((version, OLD)) = found {
            assert!(!(has_returned && stage.serves(&version, 11)));
        }
        change.join().expect("no panic");
        if let Some((version, value)) = found {
            assert!(value == NEW || !stage.serves(&version, 11));
        }
    });
}

/// No connection reports the change.
#[test]
fn a_copy_does_not_outlive_its_connection() {
    loom::model(|| {
        let stage = Stage::set();
        let changes = stage.clone();
        let change = thread::spawn(move || {
            changes.epochs.disconnect(NODE, FIRST);
            changes.change();
            changes.connect(SECOND_ONE, 20);
            changes.epochs.confirm(NODE, SECOND_ONE, changes.began + 21 * SECOND);
            changes.returns();
        });
        let found = stage.look_up();
        if let (true, Some((version, OLD))) = (stage.has_returned(), found) {
            assert!(!stage.serves(&version, 21));
        }
        change.join().expect("no panic");
    });
}

/// A connection that is silent reports no change, and the process does not know yet that it is dead.
#[test]
fn the_answers_of_a_new_connection_do_not_confirm_what_the_former_one_was_to_report() {
    loom::model(|| {
        let stage = Stage::set();
        let (version, _) = stage.look_up().expect("reported changes");
        stage.change();
        let connects = stage.clone();
        let connect = thread::spawn(move || {
            connects.connect(SECOND_ONE, 30);
            connects.epochs.confirm(NODE, SECOND_ONE, connects.began + 31 * SECOND);
        });
        // Later than the silence that a copy may outlast.
        assert!(!stage.serves(&version, 31));
        connect.join().expect("no panic");
        assert!(!stage.serves(&version, 31));
    });
}

/// The connection is taken for broken before that is told, as `connect` expects.
#[test]
fn no_changes_are_taken_for_reported_over_a_connection_that_has_broken() {
    loom::model(|| {
        let stage = Stage::set();
        stage.epochs.disconnect(NODE, FIRST);
        let is_broken = loom::sync::Arc::new(Mutex::new(false));
        let (breaks, broken) = (stage.clone(), is_broken.clone());
        let end = thread::spawn(move || {
            *broken.lock().expect("a flag") = true;
            breaks.epochs.disconnect(NODE, SECOND_ONE);
        });
        let asked = stage.began + 20 * SECOND;
        let has_broken = || *is_broken.lock().expect("a flag");
        stage.epochs.connect(NODE, SECOND_ONE, asked, &has_broken);
        end.join().expect("no panic");
        assert!(stage.epochs.version(&stage.key).is_none());
    });
}

/// An answer that comes late, of the connection before, does not make the new one look alive.
#[test]
fn a_late_answer_of_a_former_connection_confirms_nothing() {
    loom::model(|| {
        let stage = Stage::set();
        let answers = stage.clone();
        let answer = thread::spawn(move || {
            answers.epochs.confirm(NODE, FIRST, answers.began + 30 * SECOND);
        });
        stage.connect(SECOND_ONE, 20);
        let (version, _) = stage.look_up().expect("reported changes");
        answer.join().expect("no panic");
        assert!(!stage.serves(&version, 26));
    });
}

const SECOND: Duration = Duration::from_secs(1);

const SILENCE: Duration = Duration::from_secs(5);

const NODE: u16 = 0;

/// Connections by their numbers.
const FIRST: u64 = 1;
const SECOND_ONE: u64 = 2;

/// Values by their numbers.
const OLD: u64 = 0;
const NEW: u64 = 1;
