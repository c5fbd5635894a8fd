use bellwether::store::{Draft, Entry, Value, Watchers};
use bellwether::{Key, Lifetimes};
use bellwether_testkit::caches::MINUTE;
use futures_util::FutureExt;

fn entry(fence: u64) -> Entry {
    let draft = Draft::new(Value::new(vec![].into()), 1, Lifetimes::fresh_for(MINUTE));
    draft.into_entry(fence, 0, None, Vec::new())
}

/// The other change may have been an invalidation, or one that is repeated.
#[test]
fn an_entry_is_given_only_if_it_is_the_only_change() {
    let watchers = Watchers::default();
    let key = Key::of("item").digest();
    let mut watch = watchers.watch(key);
    let mut next = || watch.changed().now_or_never().map(|entry| entry.map(|it| it.fence()));
    assert_eq!(next(), None);
    watchers.tell(&key, Some(entry(1)));
    assert_eq!(next(), Some(Some(1)));
    watchers.tell(&key, Some(entry(2)));
    watchers.tell(&key, None);
    assert_eq!(next(), Some(None));
    watchers.tell_all();
    watchers.tell(&key, Some(entry(3)));
    assert_eq!(next(), Some(None));
    assert_eq!(next(), None);
}

/// A caller that began to wait before the process could receive messages.
#[test]
fn one_without_a_connection_for_messages_reports_those_that_come_later() {
    let watchers = Watchers::default();
    let key = Key::of("item").digest();
    let mut watch = watchers.watch(key).interrupted();
    assert!(watch.is_silent() && watch.is_interrupted());
    watchers.tell(&key, None);
    assert_eq!(watch.changed().now_or_never().map(|entry| entry.is_some()), Some(false));
}
