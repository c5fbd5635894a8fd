//! Random callers in random order: three processes, one key, and a history that is checked.
//!
//! The runtime has one thread and a paused clock, so that a history is replayed by its steps.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bellwether::service::ReadThrough;
use bellwether::{
    CacheErrorKind, Error, FailureCause, Key, MemoryStore, ReadThroughLayer, Wait, WhenAbandoned,
};
use bellwether_testkit::caches::{MINUTE, SECOND, is_leased, key, tasks};
use futures_util::future::{BoxFuture, join_all};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};
use tokio_test::task::{Spawn, spawn};
use tower::{Layer, Service};

use crate::support::store::{AtMoment as _, Faulty, Moment, remote};

/// One step of the game.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request begins, in one of the processes.
    Call {
        process: usize,
    },
    /// One of the open requests is polled.
    Poll {
        request: usize,
    },
    /// One of the open requests is dropped.
    Drop {
        request: usize,
    },
    /// Everything else runs a little.
    Run {
        rounds: usize,
    },
    /// A load may end, well or badly.
    LetGo {
        well: bool,
    },
    Invalidate {
        process: usize,
    },
    /// A coming request of one of the processes fails.
    Fail {
        process: usize,
        request: usize,
        moment: Moment,
    },
}

fn steps(faulty: bool) -> impl Strategy<Value = Vec<Step>> {
    let process = 0..PROCESSES;
    let fault =
        (process.clone(), 0..4_usize, prop_oneof![Just(Moment::Before), Just(Moment::After)]);
    let one = prop_oneof![
        4 => process.clone().prop_map(|process| Step::Call { process }),
        8 => any::<usize>().prop_map(|request| Step::Poll { request }),
        2 => any::<usize>().prop_map(|request| Step::Drop { request }),
        8 => (1..4_usize).prop_map(|rounds| Step::Run { rounds }),
        2 => prop::bool::weighted(0.8).prop_map(|well| Step::LetGo { well }),
        1 => process.prop_map(|process| Step::Invalidate { process }),
        if faulty { 1 } else { 0 } => fault
            .prop_map(|(process, request, moment)| Step::Fail { process, request, moment }),
    ];
    vec(one, 1..80)
}

/// What has happened, by a clock that counts events.
#[derive(Debug, Default)]
struct History {
    clock: AtomicU64,
    /// When each load began.
    loads: Mutex<Vec<u64>>,
    /// When each invalidation was asked for, and when it had returned.
    invalidations: Mutex<Vec<(u64, u64)>>,
    /// How many loads ended badly or were dropped.
    wasted: AtomicUsize,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// Whether a value may be given to a caller that asked at that moment. Its load must not have
    /// begun before an invalidation that had returned by then.
    fn allows(&self, value: usize, asked: u64) -> bool {
        let began = self.loads.lock().unwrap()[value];
        let invalidations = self.invalidations.lock().unwrap();
        invalidations.iter().all(|(called, returned)| *returned >= asked || began >= *called)
    }
}

/// Answers with the number of the load, from 0.
#[derive(Clone, Debug)]
struct Loader {
    history: Arc<History>,
    gate: Arc<Gate>,
    /// How many run in this process.
    running: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Gate {
    well: Semaphore,
    badly: Semaphore,
}

#[derive(Debug, PartialEq)]
struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

struct Running {
    loader: Loader,
    well: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.loader.running.fetch_sub(1, SeqCst);
        self.loader.history.wasted.fetch_add(usize::from(!self.well), SeqCst);
    }
}

impl Service<()> for Loader {
    type Response = usize;
    type Error = Refused;
    type Future = BoxFuture<'static, Result<usize, Refused>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Refused>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        assert_eq!(self.running.fetch_add(1, SeqCst), 0, "two loads at once in one process");
        let running = Running { loader: self.clone(), well: false };
        let now = self.history.now();
        let mut loads = self.history.loads.lock().unwrap();
        loads.push(now);
        let number = loads.len() - 1;
        drop(loads);
        Box::pin(async move {
            let mut running = running;
            let gate = Arc::clone(&running.loader.gate);
            tokio::select! {
                biased;
                passed = gate.well.acquire() => passed.unwrap().forget(),
                passed = gate.badly.acquire() => {
                    passed.unwrap().forget();
                    return Err(Refused);
                }
            }
            running.well = true;
            Ok(number)
        })
    }
}

type KeyOf = fn(&()) -> Key;
type Answer = Result<usize, Error<Refused>>;

struct Process {
    store: Faulty,
    cached: ReadThrough<Loader, KeyOf>,
}

struct Request {
    asked: u64,
    answer: Spawn<Pin<Box<dyn Future<Output = Answer> + Send>>>,
}

struct World {
    history: Arc<History>,
    gate: Arc<Gate>,
    memory: MemoryStore,
    processes: Vec<Process>,
    requests: Vec<Request>,
}

impl World {
    fn new(policy: WhenAbandoned) -> Self {
        let history = Arc::new(History::default());
        let memory = MemoryStore::new(10);
        let gate = Arc::new(Gate { well: Semaphore::new(0), badly: Semaphore::new(0) });
        let processes = (0..PROCESSES).map(|_| {
            let store = remote(&memory);
            let running = Arc::default();
            let loader = Loader { history: Arc::clone(&history), gate: Arc::clone(&gate), running };
            let layer = ReadThroughLayer::builder(store.clone(), (|()| key(1)) as KeyOf)
                .ttl(MINUTE * 60)
                .wait(Wait::at_most(Duration::MAX))
                .when_abandoned(policy)
                .build()
                .unwrap();
            Process { store, cached: layer.layer(loader) }
        });
        let processes = processes.collect();
        Self { history, gate, memory, processes, requests: Vec::new() }
    }

    async fn make(&mut self, next: Step) {
        match next {
            Step::Call { process } => {
                let asked = self.history.now();
                let call = self.processes[process].cached.call(());
                self.requests.push(Request { asked, answer: spawn(Box::pin(call)) });
            }
            Step::Poll { request } => self.poll(request),
            Step::Drop { request } => {
                if let Some(at) = request.checked_rem(self.requests.len()) {
                    self.requests.swap_remove(at);
                }
            }
            Step::Run { rounds } => {
                for _ in 0..rounds {
                    yield_now().await;
                }
            }
            Step::LetGo { well: true } => self.gate.well.add_permits(1),
            Step::LetGo { well: false } => self.gate.badly.add_permits(1),
            Step::Invalidate { process } => self.invalidate(process).await,
            Step::Fail { process, request, moment } => {
                let store = &self.processes[process].store;
                store.on_any().nth(request as u64 + 1).fails(moment);
            }
        }
    }

    fn poll(&mut self, request: usize) {
        let Some(at) = request.checked_rem(self.requests.len()) else { return };
        if let Poll::Ready(answer) = self.requests[at].answer.poll() {
            let asked = self.requests.swap_remove(at).asked;
            check(&self.history, asked, &answer);
        }
    }

    async fn invalidate(&self, process: usize) {
        let called = self.history.now();
        let handle = self.processes[process].cached.handle();
        // One that fails promises nothing.
        if handle.invalidate(&key(1)).await.is_ok() {
            let returned = self.history.now();
            self.history.invalidations.lock().unwrap().push((called, returned));
        }
    }

    /// Every caller that is still there is answered, and nothing is left.
    async fn end(mut self, patience: Duration) {
        self.gate.well.add_permits(1_000);
        let began = Instant::now();
        let requests = std::mem::take(&mut self.requests);
        let waiting = requests.into_iter().map(async |mut request| {
            let answer = timeout(MINUTE * 10, &mut request.answer).await;
            check(&self.history, request.asked, &answer.expect("no caller is stuck"));
        });
        join_all(waiting).await;
        assert!(began.elapsed() <= patience, "a caller waited for {:?}", began.elapsed());
        // A flight may give a failure to later callers for this long.
        tokio::time::sleep(SECOND * 2).await;
        assert!(self.processes.iter().all(|process| process.cached.in_flight() == 0));
        assert_eq!(tasks(), 0);
    }
}

fn check(history: &History, asked: u64, answer: &Answer) {
    match answer {
        Ok(value) => assert!(history.allows(*value, asked), "{value} is too old: {history:#?}"),
        Err(Error::Load(error)) => assert_eq!(error.get(), Some(&Refused)),
        Err(Error::Cache(error))
            if error.kind() == CacheErrorKind::LoadFailed(FailureCause::Error) => {}
        Err(other) => panic!("{other:?}"),
    }
}

fn play(steps: Vec<Step>, policy: WhenAbandoned, end: impl AsyncFnOnce(World)) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut world = World::new(policy);
        for next in steps {
            world.make(next).await;
        }
        end(world).await;
    });
}

fn policies() -> impl Strategy<Value = WhenAbandoned> {
    prop_oneof![Just(WhenAbandoned::Finish), Just(WhenAbandoned::Cancel)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// In addition to the checks of every history: no caller waits longer than for a message, no
    /// lease is left, and each load but the first has a reason.
    #[test]
    fn every_history_on_a_store_that_works_is_right(steps in steps(false), policy in policies()) {
        play(steps, policy, async |world| {
            let history = Arc::clone(&world.history);
            let memory = world.memory.clone();
            world.end(Duration::ZERO).await;
            assert!(!is_leased(&memory, 1).await);
            let loads = history.loads.lock().unwrap().len();
            let invalidations = history.invalidations.lock().unwrap().len();
            assert!(loads <= 1 + invalidations + history.wasted.load(SeqCst), "{history:#?}");
        });
    }

    /// A lease that could not be given up has to lapse, and a caller may wait for that.
    #[test]
    fn every_history_on_a_store_that_fails_is_right(steps in steps(true), policy in policies()) {
        play(steps, policy, async |world| {
            let requests = world.processes.iter().map(|process| process.store.total_calls()).sum::<usize>();
            world.end(SECOND * 11 * (requests as u32 + 1)).await;
        });
    }
}

const PROCESSES: usize = 3;
