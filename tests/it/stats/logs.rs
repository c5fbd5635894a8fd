//! What is logged of things that no caller notices: where, how often, and with what.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::trace::TraceKeys;
use bellwether::{Cache, Lifetimes, MemoryStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{
    JSON, MINUTE, SECOND, answers, ask, burst, idle, key, layer, put_for, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::sleep;
use tower::Layer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Metadata, Subscriber};

/// The messages about loads: level, cache and text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Line {
    level: String,
    cache: String,
    message: String,
    others: String,
}

impl Lines {
    fn begin() -> (Self, DefaultGuard) {
        let lines = Self::default();
        (lines.clone(), set_default(lines))
    }

    /// The messages with these words, and their levels and caches.
    fn with(&self, words: &str) -> Vec<Line> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.message.contains(words)).cloned().collect()
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "cache" => value.clone_into(&mut self.cache),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others += &format!("{name}={value:?} "),
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "bellwether::load"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = event.metadata().level().to_string();
        let mut line = Line { level, ..Line::default() };
        event.record(&mut line);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

const WARN: &str = "WARN";
const DEBUG: &str = "DEBUG";

#[tokio::test(start_paused = true)]
async fn a_message_shows_as_much_of_a_key_as_the_program_lets_out() {
    let plain = format!("{}/1", key(1).kind());
    for (keys, shown) in [(TraceKeys::Digest, key(1).to_string()), (TraceKeys::Plain, plain)] {
        let (lines, _logged) = Lines::begin();
        let layer =
            layer(MemoryStore::new(10)).ttl(Duration::ZERO).trace_keys(keys).build().unwrap();
        answers(vec![ask(&layer.layer(Loader::new()), 1)]).await;
        let said = lines.with("answers are not stored");
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].others, format!("key={shown} "), "{keys:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_refresh_is_warned_of_once_per_layer_with_its_error() {
    let (lines, _logged) = Lines::begin();
    for cache in ["one", "other"] {
        let memory = MemoryStore::new(10);
        let lifetimes = Lifetimes::fresh_for(SECOND).stale_while_revalidate(MINUTE);
        put_for(&memory, 1, "42", JSON, lifetimes).await;
        sleep(SECOND).await;
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let layer = layer(memory).stale_while_revalidate(MINUTE).name(cache).build().unwrap();
        let cached = layer.layer(loader);
        for _ in 0..3 {
            answers(vec![ask(&cached, 1)]).await;
            idle().await;
        }
        assert_eq!(cached.stats().refreshes.failed, 3);
    }
    let said = lines.with("a refresh in the background failed");
    assert_eq!(said.len(), 2, "{said:?}");
    for (line, cache) in said.iter().zip(["one", "other"]) {
        assert_eq!((&*line.level, &*line.cache), (WARN, cache));
        assert!(line.others.contains("load 1 was refused"), "{line:?}");
        assert!(line.others.contains("key=item#"), "{line:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_a_limit_refuses_are_warned_of() {
    let (lines, _logged) = Lines::begin();
    let loader = Loader::gated();
    let layer = layer(MemoryStore::new(10)).max_waiters(1).name("small").build().unwrap();
    let cached = layer.layer(loader.clone());
    let first = ask(&cached, 1);
    loader.has_begun(1).await;
    settled(burst(&cached, 1, 10)).await;
    let said = lines.with("a limit is reached");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&*said[0].level, &*said[0].cache), (WARN, "small"));
    assert!(said[0].message.ends_with("waiters"), "{said:?}");
    loader.let_go(1);
    answers(vec![first]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_and_a_refused_answer_are_told_at_level_debug() {
    let (lines, _logged) = Lines::begin();
    let memory = MemoryStore::new(10);
    let cached =
        layer(memory.clone()).name("slow").build().unwrap().layer(Loader::taking(SECOND * 3));
    let asked = ask(&cached, 1);
    sleep(SECOND).await;
    memory.invalidate(key(1)).await.unwrap();
    answers(vec![asked]).await;
    for words in ["a lease was lost during its load", "refused as outdated"] {
        let said = lines.with(words);
        assert_eq!(said.len(), 1, "{words}: {said:?}");
        assert_eq!((&*said[0].level, &*said[0].cache), (DEBUG, "slow"));
    }
}

#[test]
fn two_caches_of_one_name_with_different_options_are_warned_of() {
    let (lines, _logged) = Lines::begin();
    let cache = |ttl| -> Cache<u64, u64> {
        Cache::builder("logs.twice", MemoryStore::new(10)).ttl(ttl).build().expect("options")
    };
    let [first, same] = [MINUTE, MINUTE].map(cache);
    assert_eq!(lines.with("two caches of one name"), []);
    let other = cache(SECOND);
    let [said] = &lines.with("two caches of one name")[..] else { panic!() };
    assert_eq!((&*said.level, &*said.cache), (WARN, "logs.twice"));
    drop((first, same, other));
    // Caches that are gone are forgotten.
    cache(SECOND);
    assert_eq!(lines.with("two caches of one name").len(), 1);
}

/// As processes of two versions of a program do to each other.
#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_decoded_is_counted_and_warned_of_with_its_type_and_the_remedy() {
    let (lines, _logged) = Lines::begin();
    let memory = MemoryStore::new(10);
    let layer = layer(memory.clone()).name("shop").build().unwrap();
    let cached = layer.layer(Loader::new());
    for (codec, text) in [(JSON, "no number"), (99, "1")] {
        put_for(&memory, 1, text, codec, Lifetimes::fresh_for(MINUTE)).await;
        answers(vec![ask(&cached, 1)]).await;
    }
    assert!(cached.stats().undecodable >= 2, "{:?}", cached.stats());
    let said = lines.with("cannot be decoded, and is loaded again");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&*said[0].level, &*said[0].cache), (WARN, "shop"));
    assert!(said[0].message.contains(".version("), "{said:?}");
    assert!(said[0].others.contains("usize") && !said[0].others.contains("no number"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_its_bytes_do_not_give_again_is_warned_of_once_with_its_type() {
    let (lines, _logged) = Lines::begin();
    let cache: Cache<u64, Option<serde_json::Value>> =
        Cache::builder("shop", MemoryStore::new(10)).ttl(MINUTE).build().unwrap();
    for item in 0..3 {
        assert!(!cache.put(item, Some(serde_json::Value::Null)).await.unwrap());
    }
    assert_eq!(cache.stats().commits.unfaithful, 3);
    let said = lines.with("bytes do not give them again");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&*said[0].level, &*said[0].cache), (WARN, "shop"));
    assert!(said[0].others.contains("Option<serde_json::value::Value>"), "{said:?}");
}
