use std::sync::Arc;
use std::task::block_on;

use loom::thread;

use crate::key::{Digest, Key};
use crate::store::watch::Watchers;

fn digest() -> Digest {
    Key::of("item").digest()
}

#[test]
fn no_change_after_a_watch_was_made_is_missed() {
    loom::model(|| {
        let watchers = Arc::new(Watchers::default());
        let mut watch = watchers.watch(digest());
        let tells = Arc::clone(&watchers);
        let change = thread::spawn(move || tells.tell(&digest(), Some(7)));
        assert_eq!(block_on(watch.changed()), Some(7));
        change.join().expect("no panic");
        assert!(!watch.has_changed());
    });
}

#[test]
fn an_entry_is_told_only_if_it_is_the_only_change_that_was_not_told() {
    loom::model(|| {
        let watchers = Arc::new(Watchers::default());
        let mut watch = watchers.watch(digest());
        let tells = Arc::clone(&watchers);
        let change = thread::spawn(move || {
            tells.tell(&digest(), None);
            tells.tell(&digest(), Some(7));
        });
        assert_eq!(block_on(watch.changed()), None);
        change.join().expect("no panic");
        assert!(!watch.has_changed() || block_on(watch.changed()) == Some(7));
    });
}

#[test]
fn the_last_watch_of_a_key_leaves_nothing_and_no_other_one_takes_a_watch_away() {
    loom::model(|| {
        let watchers = Arc::new(Watchers::default());
        let first = watchers.watch(digest());
        let leaves = thread::spawn(move || drop(first));
        let mut second = watchers.watch(digest());
        leaves.join().expect("no panic");
        watchers.tell(&digest(), None);
        assert_eq!(block_on(second.changed()), None);
        drop(second);
        assert!(watchers.is_empty());
    });
}
