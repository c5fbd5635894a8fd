//! A worker: one process of the fleet, which obeys its test.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bellwether::StoreError;
use bellwether::adapter::locked;
use bellwether::service::Handle;
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::processes::work;
use futures_util::future::join_all;
use futures_util::poll;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::Service;

use crate::answer::Answer;
use crate::database::{Client, Query};
use crate::messages::{Command, NAMESPACE, Reply, Report, Setup};
use crate::rows::{Ask, LimitedRows, Rows, key_of, limited_rows, rows};

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(Member::open, |member: Arc<Member>, command| member.obey(command));
}

fn failed(error: &impl ToString) -> Reply {
    Reply::Failed(error.to_string())
}

/// A process of the fleet, connected.
pub(crate) struct Member {
    setup: Setup,
    store: RedisStore,
    database: Arc<Client>,
    service: Rows,
    limited: LimitedRows,
    /// Held for a map operation, never across an `.await`.
    bursts: Mutex<HashMap<u64, Vec<Option<Caller>>>>,
}

type Caller = JoinHandle<Answer>;

/// A timeout that is short for a test may be too short to connect on a busy machine.
async fn connect(options: RedisOptions) -> Result<RedisStore, StoreError> {
    for _ in 1..TRIES {
        if let Ok(store) = options.clone().connect().await {
            return Ok(store);
        }
    }
    options.connect().await
}

const TRIES: usize = 100;

impl Member {
    async fn open(setup: Setup) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        // What the server promises. Without it, a process keeps its loads for a second, as near copies are
        // kept: `tests/live/outage/memory.rs`.
        let mut options = RedisOptions::new(&setup.url, NAMESPACE)?
            .timeout(Duration::from_millis(setup.timeout_ms))
            .outage_ttl(Duration::ZERO);
        if setup.resp2 {
            options = options.resp2();
        }
        if setup.near {
            options = options.near(1024 * 1024);
        }
        let store = connect(options).await?;
        let database = Arc::new(Client::new(setup.database));
        let service = rows(&store, &database, &setup);
        let limited = limited_rows(&store, &database, &setup);
        let bursts = Mutex::default();
        Ok(Self { setup, store, database, service, limited, bursts })
    }

    /// A service of another layer over the same store, with its own times.
    pub(crate) fn another(&self, ttl_ms: u64, lease_ms: u64) -> Rows {
        let setup = Setup { ttl_ms, lease_ms, ..self.setup.clone() };
        rows(&self.store, &self.database, &setup)
    }

    pub(crate) fn clone_service(&self) -> Rows {
        self.service.clone()
    }

    pub(crate) fn limited(&self) -> &LimitedRows {
        &self.limited
    }

    pub(crate) fn handle(&self) -> Handle {
        self.service.handle()
    }

    pub(crate) fn store(&self) -> &RedisStore {
        &self.store
    }

    pub(crate) fn database(&self) -> &Arc<Client> {
        &self.database
    }

    /// Changes the source, and says what version it has now.
    pub(crate) async fn write(&self, key: u64) -> u64 {
        let version = self.database.ask(Query::Write { key }).await;
        version.expect("the database runs")
    }

    async fn obey(self: Arc<Self>, command: Command) -> Reply {
        match command {
            Command::Begin { burst, key, callers } => self.begin(burst, key, callers).await,
            Command::Leave { burst, callers } => self.leave(burst, &callers).await,
            Command::End { burst } => Reply::Answers(self.end(burst).await),
            Command::Waver { key, stays } => Reply::Answers(self.waver(key, stays).await),
            Command::Invalidate { key } => match self.handle().invalidate(&key_of(key)).await {
                Ok(_) => Reply::Done,
                Err(error) => failed(&error),
            },
            Command::Storm(storm) => Reply::Fared(self.storm(storm).await),
            Command::Play(game) => Reply::History(self.play(game).await),
            Command::PlayTags(game) => Reply::History(self.play_tags(game).await),
            Command::Tags(order) => Reply::History(self.obey_about_tags(order).await),
            Command::Report => Reply::Report(self.report()),
        }
    }

    async fn begin(&self, burst: u64, key: u64, callers: usize) -> Reply {
        let (begun, mut all_begun) = mpsc::channel(1);
        let callers = (0..callers).map(|_| Some(self.call(key, begun.clone())));
        locked(&self.bursts).entry(burst).or_default().extend(callers);
        drop(begun);
        // The channel ends when every caller has dropped its end of it.
        while all_begun.recv().await.is_some() {}
        Reply::Done
    }

    /// A caller of its own task. It drops `begun` when it has been polled.
    fn call(&self, key: u64, begun: mpsc::Sender<()>) -> Caller {
        let mut service = self.service.clone();
        tokio::spawn(async move {
            let mut call = pin!(service.call(Ask::of(key)).with_status());
            let polled = poll!(call.as_mut());
            drop(begun);
            Answer::of(match polled {
                Poll::Ready(answer) => answer,
                Poll::Pending => call.await,
            })
        })
    }

    async fn leave(&self, burst: u64, leaving: &[usize]) -> Reply {
        let callers: Vec<Caller> = match locked(&self.bursts).get_mut(&burst) {
            Some(callers) => leaving.iter().filter_map(|at| callers[*at].take()).collect(),
            None => return Reply::Failed(format!("no burst {burst}")),
        };
        callers.iter().for_each(JoinHandle::abort);
        // Each ends as cancelled, or with the answer it had just been given.
        join_all(callers).await;
        Reply::Done
    }

    async fn end(&self, burst: u64) -> Vec<Answer> {
        let callers = locked(&self.bursts).remove(&burst).unwrap_or_default();
        let answers = join_all(callers.into_iter().flatten()).await;
        let answers = answers.into_iter().map(|answer| answer.expect("no panic"));
        answers.collect()
    }

    async fn waver(&self, key: u64, stays: Vec<u64>) -> Vec<Answer> {
        let callers = stays.into_iter().map(|stay| {
            let mut service = self.service.clone();
            tokio::spawn(timeout(Duration::from_micros(stay), async move {
                Answer::of(service.call(Ask::of(key)).with_status().await)
            }))
        });
        let answers = join_all(callers.collect::<Vec<_>>()).await;
        let answers = answers.into_iter().map(|answer| answer.expect("no panic"));
        answers.filter_map(Result::ok).collect()
    }

    fn report(&self) -> Report {
        let stats = self.store.stats();
        Report {
            pushes: stats.pushes,
            connects: stats.connects,
            receives_pushes: self.store.stats().is_subscribed,
            in_flight: self.service.in_flight() + self.limited.in_flight(),
            kept: stats.replay.pending,
            sums: self.service.stats().into(),
        }
    }
}
