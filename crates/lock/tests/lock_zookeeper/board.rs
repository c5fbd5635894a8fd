//! A server, and the helpers of the tests.

use std::time::Duration;

use bellwether::Key;
use bellwether::store::Claim;
use bellwether_lock::{
    Attempt, Busy, Grant, Lock, Released, Request, Term, ZooKeeperLock, ZooKeeperOptions,
};
use bellwether_testkit::locks;
use bellwether_testkit::servers::ZooKeeperServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::Client;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The time-out of the sessions that tests end.
pub(crate) const SESSION: Duration = Duration::from_secs(1);

/// By how much a hand-over may be later than the end of a session.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// A server, and a client that lists its nodes.
pub(crate) struct Board {
    pub(crate) server: ZooKeeperServer,
    pub(crate) client: Client,
}

impl Board {
    pub(crate) async fn start() -> Self {
        let server = ZooKeeperServer::start();
        let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
        let client = connector.connect(&server.hosts()).await.expect("a session");
        Self { server, client }
    }

    /// An answer may take long on a machine that is busy: that is not what fails a test.
    pub(crate) fn options(&self) -> ZooKeeperOptions {
        self.options_for("test")
    }

    pub(crate) fn options_for(&self, namespace: &str) -> ZooKeeperOptions {
        let options = ZooKeeperOptions::new(&self.server.hosts(), namespace).expect("an address");
        options.timeout(PATIENCE)
    }

    /// A lock with a session of its own that is not to end.
    pub(crate) async fn lock(&self) -> ZooKeeperLock {
        ZooKeeperLock::connect(self.options()).await.expect("a session")
    }

    /// A lock whose session ends soon when its client is silent.
    pub(crate) async fn mortal_lock(&self) -> ZooKeeperLock {
        let options = self.options().session_timeout(SESSION);
        ZooKeeperLock::connect(options).await.expect("a session")
    }

    /// The names of the nodes in the queue for a key, in no order.
    pub(crate) async fn nodes(&self, key: &Key) -> Vec<String> {
        match self.client.list_children(&parent(key)).await {
            Err(zookeeper_client::Error::NoNode) => Vec::new(),
            nodes => nodes.expect("an answer"),
        }
    }

    /// The path of a claim's only node.
    pub(crate) async fn node_of(&self, claim: &Claim) -> String {
        let prefix = prefix(claim);
        let mut nodes = self.nodes(claim.key()).await;
        nodes.retain(|name| name.starts_with(&prefix));
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        format!("{}/{}", parent(claim.key()), nodes[0])
    }

    /// Waits until the queue for a key has `count` nodes.
    pub(crate) async fn has_queued(&self, key: &Key, count: usize) {
        let began = Instant::now();
        loop {
            let nodes = self.nodes(key).await;
            if nodes.len() == count {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{nodes:?} are not {count}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Starts a task that waits for a key, and returns when it is the last of `count` in the queue.
    pub(crate) async fn waiter(
        &self,
        lock: &ZooKeeperLock,
        claim: &Claim,
        place: usize,
    ) -> JoinHandle<Grant> {
        let lock = lock.clone();
        let waiting = claim.clone();
        let task = tokio::spawn(async move { wait(&lock, &waiting).await });
        self.has_queued(claim.key(), place).await;
        task
    }
}

/// What the names of a claim's nodes begin with.
pub(crate) fn prefix(claim: &Claim) -> String {
    let token = claim.token().as_bytes().map(|byte| format!("{byte:02x}")).concat();
    format!("_c_{token}-lock-")
}

/// The parent of the queue for a key, in the namespace without a name.
pub(crate) fn parent(key: &Key) -> String {
    format!("/bellwether/test/{}", key.digest())
}

pub(crate) fn key() -> Key {
    locks::key(1)
}

pub(crate) fn claim() -> Claim {
    Claim::new(key())
}

pub(crate) fn request(claim: &Claim, patience: Duration) -> Request {
    Request::new(claim.clone(), Duration::from_secs(30)).patient_for(patience)
}

/// A key that has to be free.
pub(crate) async fn take(lock: &ZooKeeperLock, claim: &Claim) -> Grant {
    match lock.acquire(request(claim, Duration::ZERO)).await {
        Ok(Attempt::Granted(grant)) => grant,
        other => panic!("a free key: {other:?}"),
    }
}

/// A key that has to be taken.
pub(crate) async fn busy(lock: &ZooKeeperLock, claim: &Claim, patience: Duration) -> Busy {
    match lock.acquire(request(claim, patience)).await {
        Ok(Attempt::Busy(busy)) => busy,
        other => panic!("a taken key: {other:?}"),
    }
}

/// A key that becomes free.
pub(crate) async fn wait(lock: &ZooKeeperLock, claim: &Claim) -> Grant {
    match lock.acquire(request(claim, PATIENCE)).await {
        Ok(Attempt::Granted(grant)) => grant,
        other => panic!("a key that becomes free: {other:?}"),
    }
}

pub(crate) async fn free(lock: &ZooKeeperLock, claim: Claim) {
    assert_eq!(lock.release(claim).await.expect("an answer"), Released::Freed);
}

pub(crate) fn fence(grant: &Grant) -> u64 {
    grant.fence.expect("a fence")
}

/// Whether the holder has been notified of its loss.
pub(crate) fn is_lost(grant: &Grant) -> bool {
    match &grant.term {
        Term::Session(session) => session.has_ended(),
        other => panic!("not by a session: {other:?}"),
    }
}

/// Waits until the holder is notified.
pub(crate) async fn lost(grant: &Grant) {
    let Term::Session(session) = &grant.term else { panic!("not by a session: {grant:?}") };
    let mut session = session.clone();
    timeout(PATIENCE, session.ended()).await.expect("the holder is notified");
}
