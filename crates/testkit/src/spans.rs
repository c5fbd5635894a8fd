//! A subscriber that records spans: their parents, links, fields, and whether they are closed.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

/// All spans up to a level, in the order of their begin. For tests on one thread: set it as the
/// default of that thread.
#[derive(Clone, Debug)]
pub struct Spans {
    most: Level,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    spans: BTreeMap<u64, SpanSeen>,
    entered: Vec<u64>,
    events: usize,
}

/// What is known of a span.
#[derive(Clone, Debug)]
pub struct SpanSeen {
    metadata: &'static Metadata<'static>,
    /// Its number. No two spans of a process have the same.
    pub number: u64,
    /// The number of its parent.
    pub parent: Option<u64>,
    /// The numbers of the spans from which it follows.
    pub follows: Vec<u64>,
    /// Its fields, as text.
    pub fields: BTreeMap<String, String>,
    /// How many handles to it and open children there are.
    pub handles: usize,
    /// How often it was entered.
    pub entered: usize,
}

impl Spans {
    /// Records spans of this level and above.
    pub fn up_to(most: Level) -> Self {
        Self { most, known: Arc::default() }
    }

    /// All spans of a name.
    pub fn named(&self, name: &str) -> Vec<SpanSeen> {
        let spans = locked(&self.known).spans.values().cloned().collect::<Vec<_>>();
        spans.into_iter().filter(|span| span.name() == name).collect()
    }

    /// The only span of a name.
    pub fn only(&self, name: &str) -> SpanSeen {
        let found = self.named(name);
        assert_eq!(found.len(), 1, "spans of the name {name}: {found:?}");
        found[0].clone()
    }

    /// A span by its number.
    pub fn numbered(&self, number: u64) -> SpanSeen {
        locked(&self.known).spans[&number].clone()
    }

    /// The names of the spans above a span, the nearest first.
    pub fn above(&self, span: &SpanSeen) -> Vec<&'static str> {
        let mut names = vec![];
        let mut next = span.parent;
        while let Some(number) = next {
            let parent = self.numbered(number);
            names.push(parent.name());
            next = parent.parent;
        }
        names
    }

    /// The spans that are not closed.
    pub fn open(&self) -> Vec<SpanSeen> {
        locked(&self.known).spans.values().filter(|span| span.handles > 0).cloned().collect()
    }

    /// How many events there were.
    pub fn events(&self) -> usize {
        locked(&self.known).events
    }
}

impl Known {
    /// Drops a handle to a span. Returns whether that closes it.
    fn close(&mut self, number: u64) -> bool {
        let Some(span) = self.spans.get_mut(&number) else { return false };
        span.handles -= 1;
        let (is_closed, parent) = (span.handles == 0, span.parent);
        parent.filter(|_| is_closed).inspect(|parent| _ = self.close(*parent));
        is_closed
    }
}

impl SpanSeen {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.metadata.name()
    }

    /// Its target.
    pub fn target(&self) -> &'static str {
        self.metadata.target()
    }

    /// A field, or nothing.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Visit for SpanSeen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, SeqCst);
        let mut known = locked(&self.known);
        let current = known.entered.last().copied().filter(|_| attributes.is_contextual());
        let mut span = SpanSeen {
            metadata: attributes.metadata(),
            number,
            parent: attributes.parent().map(Id::into_u64).or(current),
            follows: vec![],
            fields: BTreeMap::new(),
            handles: 1,
            entered: 0,
        };
        attributes.record(&mut span);
        // A child keeps it open, as in the registry of `tracing-subscriber`.
        if let Some(parent) = span.parent.and_then(|parent| known.spans.get_mut(&parent)) {
            parent.handles += 1;
        }
        known.spans.insert(number, span);
        Id::from_u64(number)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        if let Some(span) = locked(&self.known).spans.get_mut(&span.into_u64()) {
            values.record(span);
        }
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        let mut known = locked(&self.known);
        assert!(known.spans[&follows.into_u64()].handles > 0, "it follows from a closed span");
        if let Some(span) = known.spans.get_mut(&span.into_u64()) {
            span.follows.push(follows.into_u64());
        }
    }

    fn event(&self, _: &Event<'_>) {
        locked(&self.known).events += 1;
    }

    fn enter(&self, span: &Id) {
        let mut known = locked(&self.known);
        known.entered.push(span.into_u64());
        known.spans.entry(span.into_u64()).and_modify(|span| span.entered += 1);
    }

    fn exit(&self, span: &Id) {
        let mut known = locked(&self.known);
        let at = known.entered.iter().rposition(|entered| *entered == span.into_u64());
        known.entered.remove(at.expect("it was entered"));
    }

    fn clone_span(&self, span: &Id) -> Id {
        if let Some(span) = locked(&self.known).spans.get_mut(&span.into_u64()) {
            span.handles += 1;
        }
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        locked(&self.known).close(span.into_u64())
    }

    fn current_span(&self) -> Current {
        let known = locked(&self.known);
        match known.entered.last() {
            Some(number) => Current::new(Id::from_u64(*number), known.spans[number].metadata),
            None => Current::none(),
        }
    }
}
