//! Waits for replicas: an invalidation, or a commit, returns when replicas have it.
//!
//! `WAIT` holds up its connection, and covers what that connection has written before. So each node
//! has a connection for waits alone. On it, a wait writes a name of its own first: the replicas that
//! have that also have everything that the node has executed before, over any connection.
//!
//! One wait runs at a time per node, and one is about to. Writes that are executed meanwhile
//! share the latter. So a thousand of them need two or three waits, and replicas that are gone cost each
//! caller twice the time limit at most.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use bellwether_redis_client::{
    InSlot, RedisClient, RedisRequest, RedisScript, RedisValue, ReplicaRules, Route,
};

use bellwether::Digest;
use bellwether::{StoreError, StoreErrorKind};

use super::keeping_rules::ReplicatedWrites;

/// The waits for replicas of all nodes.
#[derive(Clone)]
pub(super) struct ReplicaWaits(Arc<WaitState>);

struct WaitState {
    client: RedisClient,
    writes: ReplicatedWrites,
    rules: ReplicaRules,
    script: RedisScript,
    /// By the places of the nodes. Never held across an `.await`.
    nodes: Mutex<HashMap<u16, NodeWaits>>,
}

/// The waits for the replicas of a node.
#[derive(Default)]
struct NodeWaits {
    running: Option<ReplicaWait>,
    /// It begins when the running one has ended.
    next: Option<ReplicaWait>,
}

/// A wait that several callers share.
type ReplicaWait = Shared<BoxFuture<'static, Result<(), StoreError>>>;

impl ReplicaWaits {
    pub(super) fn new(client: RedisClient, writes: ReplicatedWrites, rules: ReplicaRules) -> Self {
        let script = RedisScript::new(&[MARK]);
        Self(Arc::new(WaitState { client, writes, rules, script, nodes: Mutex::default() }))
    }

    /// Whether entries wait for replicas, too.
    pub(super) fn are_of_entries(&self) -> bool {
        self.0.writes == ReplicatedWrites::InvalidationsAndEntries
    }

    /// Waits until enough replicas have what the owner of a key or a tag has executed by now.
    ///
    /// # Errors
    /// If they do not have it in time, or if they cannot be asked. The write was executed.
    ///
    /// # Cancel safety
    /// Dropping it leaves the wait to the callers that share it.
    pub(super) async fn wait(&self, digest: &Digest) -> Result<(), StoreError> {
        let wait = self.join(digest);
        wait.await.map_err(StoreError::executed)
    }

    /// The next wait for the node of a key or a tag.
    fn join(&self, digest: &Digest) -> ReplicaWait {
        let node = self.0.client.node_of(digest.slot());
        let mut nodes = self.0.nodes();
        let waits = nodes.entry(node).or_default();
        if let Some(next) = &waits.next {
            return next.clone();
        }
        let running = waits.running.take();
        let (state, digest) = (Arc::clone(&self.0), *digest);
        // A task, so that no caller has to stay for the others.
        let task = tokio::spawn(async move {
            if let Some(running) = running {
                // Whatever became of it.
                _ = running.await;
            }
            state.begin(node);
            state.ask(&digest).await
        });
        let wait = task.map(|ended| ended.unwrap_or_else(|_| Err(interrupted())));
        let wait = wait.boxed().shared();
        waits.next = Some(wait.clone());
        wait
    }
}

impl WaitState {
    /// The next wait begins: callers that come from here on need another one.
    fn begin(&self, node: u16) {
        let mut nodes = self.nodes();
        let waits = nodes.entry(node).or_default();
        waits.running = waits.next.take();
    }

    async fn ask(&self, digest: &Digest) -> Result<(), StoreError> {
        let ReplicaRules { replicas, within, .. } = self.rules;
        let name = self.client.shared_name("replicated", digest);
        let request = RedisRequest::script(&self.script, [name], [], WAITING);
        let request = request.by_text().over(Route::Waiting).until_replicated(self.rules);
        let read = |reply| match reply {
            RedisValue::Int(count) => u32::try_from(count).ok(),
            _ => None,
        };
        let count = self.client.run(&request, read).await?;
        if count >= replicas {
            return Ok(());
        }
        let message = format!(
            "redis, {WAITING}: {count} of {replicas} replicas have it within {within:?}; the primary \
             has it"
        );
        Err(StoreError::new(StoreErrorKind::NotReady, message))
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<u16, NodeWaits>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReplicaWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaWaits").field("rules", &self.0.rules).finish_non_exhaustive()
    }
}

fn interrupted() -> StoreError {
    let message = format!("redis, {WAITING}: the runtime of the wait has ended");
    StoreError::new(StoreErrorKind::Unreachable, message)
}

/// Writes a name, because `WAIT` covers what its own connection has written. It gives no number, so
/// that its reply is not taken for that of `WAIT`.
const MARK: &str = "return redis.call('SET', KEYS[1], '1', 'PX', 60000)";

const WAITING: &str = "waiting for replicas";
