//! `Redlock`: a lock that a majority of independent servers grants.

mod quorum;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::within;
use bellwether::{ConfigError, Key};
use bellwether_redis_client::{RedisClientOptions, RedisScript};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::script;
use super::scripted::{FREEING, LockScripts, RENEWING, Scripted, TAKING, VERIFYING, prove};
use crate::instants::dependable;
use crate::{
    Attempt, Claim, LocalQueues, Lock, LockError, LockErrorKind, LockFuture, Released, Renew,
    Request, Watch, Watchers,
};

/// A lock that more than half of some independent Redis servers have to grant. A handle: clones
/// share one connection to each.
///
/// A claim asks all nodes at once, and each for its [timeout](RedisClientOptions::timeout) at most. So a
/// node that hangs costs one timeout, until it counts as [down](RedisClientOptions::down_after) and costs
/// nothing. A claim that gets a majority in time holds the lock. In time means: before the lease,
/// less 1 % and 2 ms, has ended. A claim without a majority releases at once what it got, on the
/// nodes that did not answer, too.
///
/// A renewal needs a majority that still holds. It then takes the free nodes again, so that a node
/// that restarted empty counts again. A renewal that too few nodes answer is an error, and no loss,
/// until the lease has ended.
///
/// # What it does not guarantee
/// It is not [`Fenced`](crate::Fenced): no counter of one node grows with every grant, so a
/// resource cannot recognize a late holder. Two claims can hold the lock at a time:
/// - when a holder was stopped or cut off beyond its lease, and does not know it yet;
/// - when the clock of a node jumps;
/// - when a node of the majority restarts without its data. Wait for the longest lease before you
///   start such a node, or let it write every command to disk before it answers (`appendfsync
///   always`).
///
/// So it saves work, and keeps data right only as far as clocks and disks are. For data, use a lock
/// with a fence, such as [`RedisLock`](crate::RedisLock). Use this one to lock while a server is
/// down.
///
/// Nodes must be independent: a replica is not a node.
#[derive(Clone)]
pub struct Redlock(Arc<Inner>);

struct Inner {
    nodes: Vec<Arc<Scripted>>,
}

impl Redlock {
    /// Connects to nodes. Makes sure that a majority answers and allows what the scripts need. The
    /// [`connect_timeout`](RedisClientOptions::connect_timeout) of the first node counts for all.
    ///
    /// # Errors
    /// Those of [`connect_lazily`](Self::connect_lazily). If no majority can be reached, or if any node is a node of a cluster or lacks a right.
    pub async fn connect(
        nodes: impl IntoIterator<Item = RedisClientOptions>,
    ) -> Result<Self, LockError> {
        let lock = Self::connect_lazily(nodes)?;
        lock.0.nodes[0].client.connecting(lock.proved()).await?;
        Ok(lock)
    }

    async fn proved(&self) -> Result<(), LockError> {
        let proved = self.0.nodes.iter().map(async |node| {
            let checked = node.client.check_commands(&node.scripts.commands()).await;
            checked.map_err(LockError::from)
        });
        let misfits = |error: &LockError| error.kind() == LockErrorKind::Misconfigured;
        // Other errors of a minority do not matter.
        match join_all(proved).await.into_iter().filter_map(Result::err).find(misfits) {
            Some(error) => Err(error),
            None => prove(self).await,
        }
    }

    /// A lock that connects to its nodes when it is first used.
    ///
    /// Three nodes tolerate the loss of one, five of two. An even number tolerates no more than the
    /// odd number below it. Give each a [timeout](RedisClientOptions::timeout) that is a small part of
    /// the leases.
    ///
    /// # Errors
    /// If an option is wrong, if there are not 3 to 31 nodes, or two with the same address, or one is a
    /// cluster.
    pub fn connect_lazily(
        nodes: impl IntoIterator<Item = RedisClientOptions>,
    ) -> Result<Self, ConfigError> {
        let nodes: Vec<_> = nodes.into_iter().collect();
        within("nodes of a Redlock", nodes.len(), 3, 31)?;
        if nodes.iter().any(RedisClientOptions::is_cluster) {
            return Err(ConfigError::Url { reason: "a node of a Redlock must be one server" });
        }
        let addresses: BTreeSet<_> = nodes.iter().map(RedisClientOptions::address).collect();
        if addresses.len() < nodes.len() {
            return Err(ConfigError::Url {
                reason: "two nodes of a Redlock have the same address",
            });
        }
        let watchers = Watchers::default();
        let node = |options| {
            let scripts = LockScripts {
                acquire: script(include_str!("acquire.lua")),
                renew: script(include_str!("renew.lua")),
                verify: script(include_str!("../verify.lua")),
                release: RedisScript::new(include_str!("../release.lua")),
                commands: "get getex set pttl del",
            };
            Scripted::new(options, watchers.clone(), ":redlock", scripts)
        };
        let nodes = nodes.into_iter().map(node).collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Inner { nodes })))
    }
}

impl Inner {
    async fn acquire(self: Arc<Self>, claim: Claim, lease: Duration) -> Result<Attempt, LockError> {
        let began = Instant::now();
        let answers = join_all(self.nodes.iter().map(|node| node.take(&claim, lease))).await;
        let in_time = began.elapsed() < dependable(lease);
        let attempted = quorum::attempted(&answers);
        if in_time && let Some(granted @ Attempt::Granted(_)) = attempted {
            return Ok(granted);
        }
        // Nodes that did not answer may have granted it.
        let nodes = self.nodes.iter().zip(&answers);
        let ours = nodes.filter(|(_, answer)| !matches!(answer, Ok(Attempt::Busy(_))));
        join_all(ours.map(|(node, _)| free(node, &claim))).await;
        match attempted {
            Some(Attempt::Granted(_)) => {
                let message = format!("redlock, {TAKING} of `{}`: the lease was over", claim.key());
                Err(LockError::new(LockErrorKind::NoReply, message))
            }
            attempted => attempted.ok_or_else(|| self.failure(TAKING, &claim, &answers)),
        }
    }

    async fn renew(self: Arc<Self>, claim: Claim, lease: Duration) -> Result<Renew, LockError> {
        let renew = |node: &Arc<Scripted>| Arc::clone(node).renew(claim.clone(), lease);
        let answers = join_all(self.nodes.iter().map(renew)).await;
        let outcome = quorum::renewed(&answers);
        if outcome == Some(Renew::Held) {
            let nodes = self.nodes.iter().zip(&answers);
            let lost = nodes.filter(|(_, answer)| matches!(answer, Ok(Renew::Lost)));
            // Takes them again where they are free. Errors do not matter: a majority holds without
            // these nodes.
            join_all(lost.map(|(node, _)| node.take(&claim, lease))).await;
        }
        outcome.ok_or_else(|| self.failure(RENEWING, &claim, &answers))
    }

    /// Whether a majority still holds. Each node reports the next change of its name from then on.
    async fn verify(self: Arc<Self>, claim: Claim) -> Result<Renew, LockError> {
        let verify = |node: &Arc<Scripted>| Arc::clone(node).verify(claim.clone());
        let answers = join_all(self.nodes.iter().map(verify)).await;
        quorum::renewed(&answers).ok_or_else(|| self.failure(VERIFYING, &claim, &answers))
    }

    async fn release(self: Arc<Self>, claim: Claim) -> Result<Released, LockError> {
        let answers = join_all(self.nodes.iter().map(|node| free(node, &claim))).await;
        quorum::released(&answers).ok_or_else(|| self.failure(FREEING, &claim, &answers))
    }

    /// The error when too few nodes have answered: which ones failed, and why.
    fn failure<T>(
        &self,
        doing: &str,
        claim: &Claim,
        answers: &[Result<T, LockError>],
    ) -> LockError {
        let nodes = self.nodes.iter().zip(answers);
        let failed = nodes.filter_map(|(node, answer)| Some((node, answer.as_ref().err()?)));
        let (why, errors): (Vec<_>, Vec<_>) = failed
            .map(|(node, error)| (format!("{}: {error}", node.client.options().address()), error))
            .unzip();
        let message = format!(
            "redlock, {doing} of `{}`: {} of {} nodes did not answer: {}",
            claim.key(),
            errors.len(),
            answers.len(),
            why.join("; ")
        );
        match errors.first() {
            Some(&first) => LockError::new(first.kind(), message).with_source(first.clone()),
            None => LockError::new(LockErrorKind::Unreachable, message),
        }
    }
}

fn free(
    node: &Arc<Scripted>,
    claim: &Claim,
) -> impl Future<Output = Result<Released, LockError>> + use<> {
    Arc::clone(node).release(claim.clone(), vec![node.name(claim.key())])
}

impl Lock for Redlock {
    /// Reports what any of the nodes reports.
    fn watch(&self, key: &Key) -> Watch {
        let digest = key.digest();
        let mut watches = self.0.nodes.iter().map(|node| node.client.watch(digest));
        watches.find(|watch| !watch.is_silent()).unwrap_or_else(Watch::silent)
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        Box::pin(Arc::clone(&self.0).acquire(request.claim, request.lease))
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        Box::pin(Arc::clone(&self.0).renew(claim.clone(), lease))
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        Some(Box::pin(Arc::clone(&self.0).verify(claim.clone())))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        Box::pin(Arc::clone(&self.0).release(claim))
    }

    fn local_queues(&self) -> LocalQueues {
        self.0.nodes[0].queues.clone()
    }
}

// Shows where the nodes are, and neither users nor passwords.
bellwether::debug_fields! { Redlock => |it| nodes = it.0.nodes }
