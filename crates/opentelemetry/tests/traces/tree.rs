//! Which spans there are, whose children they are, and where their links lead.

use bellwether_testkit::processes::Worker;
use bellwether_testkit::servers::RedisServer;

use crate::messages::{Command, EndedSpan, Reply, Setup};

/// A process, and whether its requests have spans of their own in the cache.
struct Traced {
    worker: Worker<Command, Reply>,
    has_cache_get: bool,
}

impl Traced {
    async fn start(redis: &RedisServer, level: &str) -> Self {
        let setup = Setup { url: redis.url(), level: level.to_owned() };
        let worker = Worker::start("worker::works", &setup).await;
        Self { worker, has_cache_get: level == "debug" }
    }

    async fn must(&self, command: Command) {
        let reply = self.worker.ask(&command).await;
        assert!(matches!(reply, Reply::Done), "{command:?}: {reply:?}");
    }

    async fn answers(&self) -> Vec<String> {
        match self.worker.ask(&Command::Answers).await {
            Reply::Answers(answers) => answers,
            other => panic!("no answers: {other:?}"),
        }
    }

    /// All spans: those of so many requests, and of so many loads with a query each.
    async fn spans(&self, requests: usize, loads: usize) -> Vec<EndedSpan> {
        let ended = requests * self.waiters().len() + 2 * loads;
        match self.worker.ask(&Command::Spans { ended }).await {
            Reply::Spans(spans) => {
                assert_eq!(spans.len(), ended, "{spans:?}");
                spans
            }
            other => panic!("no spans: {other:?}"),
        }
    }

    /// The spans of a request, the nearest to the cache first. That one has the links.
    fn waiters(&self) -> &'static [&'static str] {
        if self.has_cache_get { &["cache.get", "request"] } else { &["request"] }
    }
}

fn named<'a>(spans: &'a [EndedSpan], name: &str) -> Vec<&'a EndedSpan> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn only<'a>(spans: &'a [EndedSpan], name: &str) -> &'a EndedSpan {
    let [span] = named(spans, name)[..] else { panic!("not one {name}: {spans:?}") };
    span
}

/// The spans above a span, the nearest first.
fn above<'a>(spans: &'a [EndedSpan], span: &EndedSpan) -> Vec<&'a EndedSpan> {
    let mut above: Vec<&EndedSpan> = vec![];
    let mut next = span.parent.clone();
    while let Some(parent) = next {
        let parent = spans.iter().find(|it| it.span == parent && it.trace == span.trace);
        let parent = parent.unwrap_or_else(|| panic!("no parent of {span:?}"));
        next = parent.parent.clone();
        above.push(parent);
    }
    above
}

fn names<'a>(spans: &[&'a EndedSpan]) -> Vec<&'a str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

/// One load for callers in two processes, which all wait when it ends.
struct SharedLoad {
    /// The spans of the process that loads, and of the other one.
    leading: Vec<EndedSpan>,
    waiting: Vec<EndedSpan>,
    waiters: &'static [&'static str],
}

impl SharedLoad {
    async fn of(level: &str, callers: usize) -> Self {
        let redis = RedisServer::start();
        let leader = Traced::start(&redis, level).await;
        let other = Traced::start(&redis, level).await;
        leader.must(Command::Ask { callers: 1 }).await;
        leader.must(Command::Loading { loads: 1 }).await;
        leader.must(Command::Ask { callers: callers - 1 }).await;
        other.must(Command::Ask { callers: 1 }).await;
        other.must(Command::Waiting).await;
        other.must(Command::Ask { callers: callers - 1 }).await;
        leader.must(Command::LetGo).await;
        for process in [&leader, &other] {
            assert_eq!(process.answers().await, vec!["load 1"; callers]);
        }
        let leading = leader.spans(callers, 1).await;
        let waiting = other.spans(callers, 0).await;
        Self { leading, waiting, waiters: leader.waiters() }
    }

    fn load(&self) -> &EndedSpan {
        only(&self.leading, "cache.load")
    }

    /// The span of the request that opened the load.
    fn opener(&self) -> &EndedSpan {
        above(&self.leading, self.load())[0]
    }

    /// The spans of the trace of the load: each with its name, how many links it has, and its size.
    fn trace(&self) -> Vec<(&str, usize, (usize, usize))> {
        let all = self.leading.iter().chain(&self.waiting);
        let of_load = all.filter(|span| span.trace == self.load().trace);
        let mut trace: Vec<_> =
            of_load.map(|span| (span.name.as_str(), span.links.len(), span.size)).collect();
        trace.sort_unstable();
        trace
    }
}

const LEVELS: [&str; 2] = ["debug", "info"];

#[tokio::test(flavor = "multi_thread")]
async fn the_query_has_the_request_that_opened_the_load_as_an_ancestor() {
    for level in LEVELS {
        let shared = SharedLoad::of(level, 10).await;
        let query = only(&shared.leading, "query");
        let path = [&["cache.load"], shared.waiters].concat();
        assert_eq!(names(&above(&shared.leading, query)), path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_waiter_of_the_loading_process_is_linked_to_the_load_but_the_opener() {
    for level in LEVELS {
        let shared = SharedLoad::of(level, 10).await;
        let load = shared.load();
        let waiters = named(&shared.leading, shared.waiters[0]);
        let (opener, others): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|span| span.trace == load.trace);
        assert_eq!((opener, others.len()), (vec![shared.opener()], 9));
        assert!(shared.opener().links.is_empty());
        for waiter in others {
            assert_eq!(waiter.links, [(load.trace.clone(), load.span.clone())], "{waiter:?}");
        }
    }
}

/// The trace travels beside the lease, in Redis.
#[tokio::test(flavor = "multi_thread")]
async fn every_waiter_of_another_process_is_linked_to_the_trace_of_the_load() {
    for level in LEVELS {
        let shared = SharedLoad::of(level, 10).await;
        let opener = shared.opener();
        let waiters = named(&shared.waiting, shared.waiters[0]);
        assert_eq!(waiters.len(), 10);
        for waiter in waiters {
            assert_eq!(waiter.links, [(opener.trace.clone(), opener.span.clone())], "{waiter:?}");
            assert_ne!(waiter.trace, opener.trace);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_load_does_not_grow_with_its_waiters() {
    for level in LEVELS {
        let few = SharedLoad::of(level, 2).await;
        let many = SharedLoad::of(level, 200).await;
        assert_eq!(few.trace(), many.trace());
        let names: Vec<_> = many.trace().iter().map(|(name, ..)| *name).collect();
        let mut all = [&["cache.load", "query"], many.waiters].concat();
        all.sort_unstable();
        assert_eq!(names, all);
        assert!(many.trace().iter().all(|(_, links, _)| *links == 0), "{:?}", many.trace());
        // A trace of its own for each waiter, with one link.
        let others = many.leading.iter().chain(&many.waiting);
        let links: usize = others.map(|span| span.links.len()).sum();
        assert_eq!(links, 399);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_refresh_is_a_trace_of_its_own_that_follows_from_its_trigger() {
    for level in LEVELS {
        let redis = RedisServer::start();
        let process = Traced::start(&redis, level).await;
        process.must(Command::LetGo).await;
        process.must(Command::Ask { callers: 1 }).await;
        assert_eq!(process.answers().await, ["load 1"]);
        process.must(Command::Expire).await;
        process.must(Command::Ask { callers: 1 }).await;
        assert_eq!(process.answers().await, ["load 1"]);
        process.must(Command::Loading { loads: 2 }).await;
        process.must(Command::LetGo).await;
        process.must(Command::Refreshed { refreshes: 1 }).await;

        let spans = process.spans(2, 2).await;
        let loads = named(&spans, "cache.load");
        let [refresh] = loads.iter().filter(|load| load.parent.is_none()).collect::<Vec<_>>()[..]
        else {
            panic!("not one load in the background: {loads:?}")
        };
        let [query] = named(&spans, "query")
            .into_iter()
            .filter(|it| it.trace == refresh.trace)
            .collect::<Vec<_>>()[..]
        else {
            panic!("not one query: {spans:?}")
        };
        assert_eq!(query.parent.as_ref(), Some(&refresh.span));
        let requests = named(&spans, process.waiters()[0]);
        let first = loads.iter().find(|load| load.parent.is_some()).expect("a first load");
        let [trigger] =
            requests.into_iter().filter(|it| it.trace != first.trace).collect::<Vec<_>>()[..]
        else {
            panic!("not one trigger: {spans:?}")
        };
        assert_eq!(refresh.links, [(trigger.trace.clone(), trigger.span.clone())]);
        assert!(trigger.links.is_empty() && trigger.trace != refresh.trace);
    }
}
