//! A store that counts its requests, and fails where the test says.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, Peek, Renew, Store, StoreFuture,
    Watch,
};
use bellwether::{Key, MemoryStore, StoreError, StoreErrorKind};
use bellwether_testkit::caches::NEVER;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::timeout;

/// A handle to a `MemoryStore`, as one process of a fleet has it. Clones share what was scripted;
/// another `Scripted` over the same store is another process.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    store: MemoryStore,
    place: Place,
    messages: PushMessages,
    script: Arc<Script>,
}

/// Where the store seems to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In this process.
    Here,
    /// In another process: it has to be asked, and no answer is there at once.
    Away,
}

/// Whether messages of changes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushMessages {
    Delivered,
    /// The store reports that there are no messages.
    Unavailable,
    /// The store expects messages, but every one is lost.
    Lost,
}

#[derive(Debug, Default)]
struct Script {
    asked: Mutex<Vec<Op>>,
    watches: AtomicUsize,
    rules: Mutex<Vec<Rule>>,
}

/// An operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Abandon,
    Acquire,
    Commit,
    Expire,
    Fail,
    Invalidate,
    Look,
    Renew,
}

/// When something happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before it is done: the request is on its way.
    Before,
    /// After it is done: the answer is on its way.
    After,
}

#[derive(Clone, Debug)]
struct Rule {
    hits: Hits,
    moment: Moment,
    what: What,
}

/// The requests of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hits {
    All,
    Every(Op),
    /// The next one.
    Next(Op),
    /// The n-th request, counted from 0.
    Nth(usize),
}

#[derive(Clone, Debug)]
enum What {
    Fail,
    Hold(Gate),
}

/// A gate at which one request waits.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Sender<Passage>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Awaited,
    Reached,
    Open,
}

impl Scripted {
    /// A store in this process.
    pub(crate) fn over(store: &MemoryStore) -> Self {
        let script = Arc::default();
        Self { store: store.clone(), place: Place::Here, messages: PushMessages::Delivered, script }
    }

    /// A store in another process.
    pub(crate) fn away(store: &MemoryStore) -> Self {
        Self { place: Place::Away, ..Self::over(store) }
    }

    /// The same, without messages of changes, which it reports.
    pub(crate) fn without_messages(self) -> Self {
        Self { messages: PushMessages::Unavailable, ..self }
    }

    /// The same, but all its messages are lost.
    pub(crate) fn losing_messages(self) -> Self {
        Self { messages: PushMessages::Lost, ..self }
    }

    /// How often an operation was asked for.
    pub(crate) fn asked(&self, op: Op) -> usize {
        self.script.asked.lock().unwrap().iter().filter(|asked| **asked == op).count()
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> usize {
        self.script.asked.lock().unwrap().len()
    }

    /// From now on every request fails.
    pub(crate) fn breaks(&self) {
        self.rule(Hits::All, Moment::Before, What::Fail);
    }

    /// From now on an operation fails.
    pub(crate) fn fails(&self, op: Op, moment: Moment) {
        self.rule(Hits::Every(op), moment, What::Fail);
    }

    /// The n-th request fails, counted from 0.
    pub(crate) fn fails_at(&self, request: usize, moment: Moment) {
        self.rule(Hits::Nth(request), moment, What::Fail);
    }

    /// The next request for an operation waits at a gate.
    pub(crate) fn holds(&self, op: Op, moment: Moment) -> Gate {
        let gate = Gate(watch::Sender::new(Passage::Awaited));
        self.rule(Hits::Next(op), moment, What::Hold(gate.clone()));
        gate
    }

    /// Nothing fails any more.
    pub(crate) fn heals(&self) {
        self.script.rules.lock().unwrap().clear();
    }

    fn rule(&self, hits: Hits, moment: Moment, what: What) {
        self.script.rules.lock().unwrap().push(Rule { hits, moment, what });
    }

    fn ask<T: Send + 'static>(&self, op: Op, answer: StoreFuture<T>) -> StoreFuture<T> {
        let rules = self.script.note(op);
        let is_away = self.place == Place::Away;
        Box::pin(async move {
            meet(&rules, op, Moment::Before).await?;
            if is_away {
                yield_now().await;
            }
            let answer = answer.await?;
            if is_away {
                yield_now().await;
            }
            meet(&rules, op, Moment::After).await?;
            Ok(answer)
        })
    }
}

impl Script {
    /// Counts a request, and returns the rules for it.
    fn note(&self, op: Op) -> Vec<Rule> {
        let mut asked = self.asked.lock().unwrap();
        let number = asked.len();
        // A caller that asks without end is stopped here.
        assert!(number < 20_000, "the store is asked the same over and over");
        asked.push(op);
        let mut rules = self.rules.lock().unwrap();
        let (ours, others) = rules.drain(..).partition(|rule| rule.is_for(op, number));
        *rules = others;
        let lasting = |rule: &&Rule| matches!(rule.hits, Hits::All | Hits::Every(_));
        rules.extend(ours.iter().filter(lasting).cloned());
        ours
    }
}

impl Rule {
    fn is_for(&self, op: Op, number: usize) -> bool {
        match self.hits {
            Hits::All => true,
            Hits::Every(of) | Hits::Next(of) => of == op,
            Hits::Nth(nth) => nth == number,
        }
    }
}

async fn meet(rules: &[Rule], op: Op, moment: Moment) -> Result<(), StoreError> {
    for rule in rules.iter().filter(|rule| rule.moment == moment) {
        match &rule.what {
            What::Fail => {
                let message = format!("{op:?} fails, as scripted");
                return Err(StoreError::new(StoreErrorKind::Unreachable, message));
            }
            What::Hold(gate) => gate.pass().await,
        }
    }
    Ok(())
}

impl Gate {
    /// Waits until the request has come.
    pub(crate) async fn reached(&self) {
        let reached = timeout(NEVER, self.until(|passage| passage != Passage::Awaited)).await;
        reached.expect("the request comes");
    }

    /// Lets the request go.
    pub(crate) fn open(&self) {
        self.0.send_replace(Passage::Open);
    }

    async fn pass(&self) {
        self.0.send_if_modified(|passage| {
            let first = *passage == Passage::Awaited;
            *passage = if first { Passage::Reached } else { *passage };
            first
        });
        self.until(|passage| passage == Passage::Open).await;
    }

    async fn until(&self, is_so: impl Fn(Passage) -> bool) {
        let mut passage = self.0.subscribe();
        passage.wait_for(|passage| is_so(*passage)).await.expect("the gate is there");
    }
}

impl Store for Scripted {
    fn peek(&self, key: &Key) -> Peek {
        match self.place {
            Place::Here => self.store.peek(key),
            Place::Away => Peek::Unknown,
        }
    }

    fn watch(&self, key: &Key) -> Watch {
        // Each flight makes one, so an endless loop is stopped here, too.
        let watches = self.script.watches.fetch_add(1, SeqCst);
        assert!(watches < 20_000, "flights are opened over and over");
        match self.messages {
            PushMessages::Delivered => self.store.watch(key),
            PushMessages::Unavailable => Watch::silent(),
            PushMessages::Lost => self.store.watch(&Key::of("never changed")),
        }
    }

    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>> {
        self.ask(Op::Look, self.store.lookup(key))
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.ask(Op::Acquire, self.store.acquire(claim, term, accept))
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.ask(Op::Renew, self.store.renew(lease, term))
    }

    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit> {
        self.ask(Op::Commit, self.store.commit(lease, draft))
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        self.ask(Op::Fail, self.store.fail(lease, failure))
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        self.ask(Op::Abandon, self.store.abandon(claim))
    }

    fn invalidate(&self, key: Key) -> StoreFuture<bool> {
        self.ask(Op::Invalidate, self.store.invalidate(key))
    }

    fn expire(&self, key: Key) -> StoreFuture<bool> {
        self.ask(Op::Expire, self.store.expire(key))
    }
}
