//! A lock on a server of its own, of whatever kind.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::{
    Attempt, Fenced, Grant, Lock, LockError, MySqlOptions, MySqlRowLock, PostgresLock,
    PostgresOptions, Released, Request, Session, Term,
};
use bellwether_testkit::servers::{MariaDbServer, PostgresServer};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use bellwether_testkit::locks::key;

/// How a database locks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Rows,
    Advisory,
}

/// The options of a lock.
#[derive(Clone, Debug)]
pub(crate) struct LockSettings {
    pub(crate) namespace: String,
    pub(crate) timeout: Duration,
    pub(crate) session: Duration,
    pub(crate) connections: usize,
    pub(crate) ca_file: Option<PathBuf>,
}

impl Default for LockSettings {
    fn default() -> Self {
        let timeout = Duration::from_secs(5);
        let session = SESSION;
        Self { namespace: "test".into(), timeout, session, connections: 128, ca_file: None }
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Rows, Self::Advisory];

    pub(crate) fn lock_at(self, url: &str, settings: &LockSettings) -> Arc<dyn Fenced> {
        match self {
            Self::Rows => {
                Arc::new(MySqlRowLock::connect_lazily(mysql(url, settings)).expect("options"))
            }
            Self::Advisory => {
                Arc::new(PostgresLock::connect_lazily(postgres(url, settings)).expect("options"))
            }
        }
    }

    /// As [`lock_at`](Self::lock_at), and finds out whether it works.
    pub(crate) async fn connect(
        self,
        url: &str,
        settings: &LockSettings,
    ) -> Result<Arc<dyn Fenced>, LockError> {
        Ok(match self {
            Self::Rows => Arc::new(MySqlRowLock::connect(mysql(url, settings)).await?),
            Self::Advisory => Arc::new(PostgresLock::connect(postgres(url, settings)).await?),
        })
    }

    /// The address of the database, by way of this one.
    pub(crate) fn url_by(self, address: SocketAddr) -> String {
        match self {
            Self::Rows => MariaDbServer::url_by(address),
            Self::Advisory => PostgresServer::url_by(address),
        }
    }
}

macro_rules! put {
    ($settings:ident, $options:expr) => {{
        let options = $options
            .timeout($settings.timeout)
            .session_timeout($settings.session)
            .connections($settings.connections);
        match &$settings.ca_file {
            Some(file) => options.ca_file(file),
            None => options,
        }
    }};
}

fn mysql(url: &str, settings: &LockSettings) -> MySqlOptions {
    put!(settings, MySqlOptions::new(url, &settings.namespace).expect("options"))
}

fn postgres(url: &str, settings: &LockSettings) -> PostgresOptions {
    put!(settings, PostgresOptions::new(url, &settings.namespace).expect("options"))
}

pub(crate) enum Server {
    MariaDb(MariaDbServer),
    Postgres(PostgresServer),
}

/// A server, and how it is used.
pub(crate) struct Bench {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
}

impl Bench {
    pub(crate) fn start(kind: Kind) -> Self {
        let server = match kind {
            Kind::Rows => Server::MariaDb(MariaDbServer::start()),
            Kind::Advisory => Server::Postgres(PostgresServer::start()),
        };
        Self { kind, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.server {
            Server::MariaDb(server) => server.address(),
            Server::Postgres(server) => server.address(),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.kind.url_by(self.address())
    }

    pub(crate) fn lock(&self) -> Arc<dyn Fenced> {
        self.lock_with(&LockSettings::default())
    }

    pub(crate) fn lock_with(&self, settings: &LockSettings) -> Arc<dyn Fenced> {
        self.kind.lock_at(&self.url(), settings)
    }

    /// A lock by way of another address.
    pub(crate) fn lock_by(&self, address: SocketAddr) -> Arc<dyn Fenced> {
        self.kind.lock_at(&self.kind.url_by(address), &LockSettings::default())
    }

    pub(crate) fn command(&self, statements: &str) -> String {
        match &self.server {
            Server::MariaDb(server) => server.command(statements),
            Server::Postgres(server) => server.command(statements),
        }
    }

    pub(crate) fn kill(&mut self) {
        match &mut self.server {
            Server::MariaDb(server) => server.kill(),
            Server::Postgres(server) => server.kill(),
        }
    }

    pub(crate) fn restart(&mut self) {
        match &mut self.server {
            Server::MariaDb(server) => server.restart(),
            Server::Postgres(server) => server.restart(),
        }
    }

    /// How many sessions of ours there are.
    pub(crate) fn sessions(&self) -> usize {
        self.command(match self.kind {
            Kind::Rows => {
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() \
                 AND user NOT IN ('system user', 'event_scheduler')"
            }
            Kind::Advisory => {
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'bellwether'"
            }
        })
        .lines()
        .count()
    }

    /// Whether one of them waits for a key.
    pub(crate) fn has_a_waiter(&self) -> bool {
        let waiting = self.command(match self.kind {
            Kind::Rows => {
                "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID() \
                 AND info LIKE '%FOR UPDATE%' \
                 AND info NOT LIKE '%NOWAIT%'"
            }
            Kind::Advisory => "SELECT pid FROM pg_locks WHERE NOT granted",
        });
        !waiting.is_empty()
    }

    /// Ends all sessions of ours, as an operator would.
    pub(crate) fn kill_sessions(&self) {
        match self.kind {
            Kind::Rows => self.command(
                "DELIMITER //\nBEGIN NOT ATOMIC \
                 FOR it IN (SELECT id FROM information_schema.processlist \
                 WHERE id <> CONNECTION_ID() AND user = 'root') \
                 DO EXECUTE IMMEDIATE CONCAT('KILL ', it.id); END FOR; END //",
            ),
            Kind::Advisory => self.command(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'bellwether'",
            ),
        };
    }
}

/// A key that is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    pub(crate) fence: u64,
    pub(crate) session: Session,
}

impl Held {
    fn new(claim: Claim, grant: Grant) -> Self {
        let Term::Session(session) = grant.term else { panic!("held by {:?}", grant.term) };
        Self { claim, fence: grant.fence.expect("a fence"), session }
    }

    /// Waits until the holder is notified of the loss.
    pub(crate) async fn lost(&mut self, within: Duration) {
        let ended = timeout(within, self.session.ended()).await;
        ended.unwrap_or_else(|_| panic!("no loss was reported within {within:?}"));
        assert!(self.session.has_ended());
    }
}

/// Asks for a key.
pub(crate) async fn ask(lock: &dyn Fenced, key: Key, patience: Duration) -> Option<Held> {
    ask_by(lock, Claim::new(key), patience).await.expect("an answer")
}

pub(crate) async fn ask_by(
    lock: &dyn Fenced,
    claim: Claim,
    patience: Duration,
) -> Result<Option<Held>, LockError> {
    let request = Request::new(claim.clone(), NO_LEASE).patient_for(patience);
    match lock.acquire(request).await? {
        Attempt::Granted(grant) => Ok(Some(Held::new(claim, grant))),
        Attempt::Busy(_) => Ok(None),
        other => panic!("{other:?}"),
    }
}

/// A key that has to be free.
pub(crate) async fn take(lock: &dyn Fenced, key: Key) -> Held {
    ask(lock, key, Duration::ZERO).await.expect("the key is free")
}

/// Releases a key that has to be held.
pub(crate) async fn free(lock: &dyn Lock, held: Held) {
    assert_eq!(lock.release(held.claim).await.expect("an answer"), Released::Freed);
}

/// Asks until the key is granted, whatever comes between, and gives how long it took.
pub(crate) async fn insist(lock: &dyn Fenced, key: Key) -> (Held, Duration) {
    let began = Instant::now();
    loop {
        match ask_by(lock, Claim::new(key.clone()), Duration::from_secs(10)).await {
            Ok(Some(held)) => return (held, began.elapsed()),
            Ok(None) | Err(_) => sleep(Duration::from_millis(10)).await,
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it is never granted");
    }
}

/// Puts promises to every kind of lock, each on a server of its own.
macro_rules! promises {
    ($($promise:ident),* $(,)?) => {
        mod of_every_kind {
            $(
                #[test]
                fn $promise() {
                    crate::bench::of_every_kind(super::$promise);
                }
            )*
        }
    };
}

pub(crate) use promises;

/// All kinds at a time: most of it is waiting.
pub(crate) fn of_every_kind<F: Future<Output = ()>>(promise: impl Fn(Bench) -> F + Sync) {
    let put_to = |kind| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(promise(Bench::start(kind)));
    };
    thread::scope(|threads| {
        let put_to = &put_to;
        let kinds = Kind::ALL.map(|kind| (kind, threads.spawn(move || put_to(kind))));
        let broken = kinds.map(|(kind, thread)| thread.join().is_err().then_some(kind));
        let broken: Vec<_> = broken.into_iter().flatten().collect();
        assert!(broken.is_empty(), "it does not hold for {broken:?}");
    });
}

/// How long something takes on a machine that is not too busy for it: the best of three times.
pub(crate) async fn at_best(bound: Duration, run: impl AsyncFn(u64) -> Duration) {
    let mut took = Vec::new();
    for number in 0..3 {
        took.push(run(number).await);
        if took[took.len() - 1] < bound {
            return;
        }
    }
    panic!("not within {bound:?}: {took:?}");
}

/// No account is taken of leases.
pub(crate) const NO_LEASE: Duration = Duration::from_millis(1);

/// A session timeout short enough to wait for, and long enough for a machine that is busy.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

/// The longest time of a hand-over after the event that it waits for.
pub(crate) const SLACK: Duration = Duration::from_millis(250);

/// The same, for tests that do not measure it, on a busy machine.
pub(crate) const AMPLE: Duration = Duration::from_secs(2);
