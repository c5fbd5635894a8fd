//! What is logged about an outage.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

use super::{Site, lease, look, works_again};

/// Counts log messages of level info and above, by message.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<BTreeMap<String, usize>>>);

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            *self.0.lock().expect("lines").entry(format!("{value:?}")).or_default() += 1;
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("bellwether")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn ten_thousand_failures_are_a_few_lines_in_the_log() {
    let lines = Lines::default();
    let _logged = subscriber::set_default(lines.clone());
    let site = Site::start().await;
    let options = site.options().down_after(1);
    let store = options.probe_every(Duration::from_millis(100));
    let store = store.connect_lazily().expect("options");
    let patient = site.options().connect_lazily().expect("options");
    for _ in 0..3 {
        site.proxy.refuse();
        site.proxy.cut();
        for _ in 0..3_000 {
            let _ = look(&store).await;
            let _ = lease(&patient).await;
        }
        site.proxy.pass();
        works_again(&store, Instant::now()).await;
        works_again(&patient, Instant::now()).await;
    }
    site.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..1_000 {
        let _ = lease(&store).await;
    }
    let lines = lines.0.lock().expect("lines").clone();
    // Two stores, each of which may say it.
    assert!(lines.values().all(|count| *count <= 2), "{lines:?}");
    let said: Vec<_> = lines.keys().map(String::as_str).collect();
    for expected in ["taken to be down", "answers again", "become a replica"] {
        assert!(said.iter().any(|line| line.contains(expected)), "{expected}: {said:?}");
    }
}
