//! One operation for a claim, over one session.

use std::future::Future;
use std::time::Duration;

use tokio::select;
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher, Stat};

use super::claim_table::{ClaimState, Node};
use super::error::ZooKeeperError;
use super::node_names::{prefix, queue_order};
use super::server_session::ServerSession;
use crate::{Attempt, Busy, Claim, Grant, Renew, Request, Token};

/// One operation for a claim.
pub(super) struct ClaimOperation<'a> {
    session: &'a ServerSession,
    client: Client,
    token: Token,
    /// The parent of all nodes of the key.
    parent: String,
    /// The prefix of the names of the claim's own nodes.
    prefix: String,
    /// When the operation times out.
    until: Instant,
}

impl<'a> ClaimOperation<'a> {
    /// # Errors
    /// If the session has ended.
    pub(super) fn new(session: &'a ServerSession, claim: &Claim) -> Result<Self, ZooKeeperError> {
        let (token, digest) = (claim.token(), claim.key().digest());
        let client = session.client().ok_or(ZooKeeperError::Ended)?;
        let parent = format!("{}/{digest}", session.options.root);
        let until = Instant::now() + session.options.timeout;
        Ok(Self { session, client, token, parent, prefix: prefix(token), until })
    }

    /// Joins the queue, and waits in it until `ends`.
    pub(super) async fn acquire(
        &mut self,
        request: &Request,
        ends: Instant,
    ) -> Result<Attempt, ZooKeeperError> {
        let known_until = ends + self.session.granted + 2 * self.session.options.timeout;
        let pending = self.session.claims.ask(&request.claim, known_until);
        let pending = pending.ok_or(ZooKeeperError::Released)?;
        let mut state = pending.state.clone();
        let is_try = request.patience.is_zero();
        if is_try && state == ClaimState::Absent && self.is_wanted().await? {
            return Ok(Attempt::Busy(Busy::new()));
        }
        loop {
            let node = self.ensure_node(state).await?;
            let Some(ahead) = self.ahead_of(&node).await? else {
                state = self.note(ClaimState::Absent);
                continue;
            };
            let Some(last) = ahead.last() else { return self.grant(&node) };
            let ahead = u32::try_from(ahead.len()).ok();
            if is_try {
                // Now, or as soon as the server answers.
                _ = self.leave().await;
            }
            if is_try || Instant::now() >= ends {
                return Ok(Attempt::Busy(Busy { ahead, ..Busy::new() }));
            }
            self.wait_for(last, ends).await?;
            state = ClaimState::Present(node);
        }
    }

    /// Whether the claim still holds what it was granted.
    pub(super) async fn renew(&self) -> Result<Renew, ZooKeeperError> {
        let Some(node) = self.session.claims.held(self.token) else { return Ok(Renew::Lost) };
        if self.made_by(&node.name).await? == Some((node.made_by, self.session.id)) {
            return Ok(Renew::Held);
        }
        self.note(ClaimState::Absent);
        Ok(Renew::Lost)
    }

    /// A watch for the next change of the node by which the claim holds the key. `None` if the node
    /// was removed.
    pub(super) async fn watched(&self) -> Result<Option<OneshotWatcher>, ZooKeeperError> {
        let Some(node) = self.session.claims.held(self.token) else { return Ok(None) };
        let Some((stat, watcher)) = self.watch(&node.name).await? else {
            self.note(ClaimState::Absent);
            return Ok(None);
        };
        let is_ours = (stat.czxid as u64, stat.ephemeral_owner) == (node.made_by, self.session.id);
        Ok(is_ours.then_some(watcher))
    }

    /// Removes the nodes of the claim. Returns whether one of them held the key.
    pub(super) async fn leave(&self) -> Result<bool, ZooKeeperError> {
        self.session.claims.leave(self.token);
        let was_held = self.delete_all().await?;
        self.note(ClaimState::Absent);
        Ok(was_held)
    }

    async fn delete_all(&self) -> Result<bool, ZooKeeperError> {
        if let Some(node) = self.session.claims.held(self.token) {
            return self.delete(&node.name).await;
        }
        // Without a certain node, this searches the queue. An earlier session may have made one,
        // too.
        let queue = self.queue().await?;
        let was_first = queue.first().is_some_and(|first| first.starts_with(&self.prefix));
        for name in queue.iter().filter(|name| name.starts_with(&self.prefix)) {
            self.delete(name).await?;
        }
        Ok(was_first)
    }

    fn grant(&self, node: &Node) -> Result<Attempt, ZooKeeperError> {
        if !self.session.claims.hold(self.token) {
            return Err(ZooKeeperError::Released);
        }
        let grant = Grant::by_session(self.session.liveness.clone());
        Ok(Attempt::Granted(grant.fenced(node.made_by)))
    }

    /// The claim's own node, which is made if there is none.
    ///
    /// If the server did not answer an attempt to make one, this searches before it makes another
    /// one.
    async fn ensure_node(&self, mut state: ClaimState) -> Result<Node, ZooKeeperError> {
        loop {
            if state == ClaimState::Unacknowledged {
                state = self.note(self.find().await?);
            }
            if let ClaimState::Present(node) = state {
                return Ok(node);
            }
            if !self.session.claims.may_have_node(self.token) {
                return Err(ZooKeeperError::Released);
            }
            self.note(ClaimState::Unacknowledged);
            state = match self.make().await {
                Ok(node) => self.note(ClaimState::Present(node)),
                Err(ZooKeeperError::Lost(_)) => ClaimState::Unacknowledged,
                Err(ZooKeeperError::Reported(Error::NoNode)) => self.make_with_parent().await?,
                Err(error) => return Err(error),
            };
        }
    }

    async fn make(&self) -> Result<Node, ZooKeeperError> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        let path = self.path(&self.prefix);
        let (stat, number) = self.ask(self.client.create(&path, b"", &options)).await?;
        Ok(Node { name: format!("{}{number}", self.prefix), made_by: stat.czxid as u64 })
    }

    /// Makes the parent together with its first child. The server removes a container when its last
    /// child is removed, so one that never had a child would stay.
    async fn make_with_parent(&self) -> Result<ClaimState, ZooKeeperError> {
        let mut writer = self.client.new_multi_writer();
        writer.add_create(&self.parent, b"", &CreateMode::Container.with_acls(self.acls()))?;
        let node = CreateMode::EphemeralSequential.with_acls(self.acls());
        writer.add_create(&self.path(&self.prefix), b"", &node)?;
        let commit = writer.commit();
        match self.ask(async { commit.await.map_err(Error::from) }).await {
            // Not every server tells the name of a node that a transaction made.
            Ok(_) | Err(ZooKeeperError::Lost(_)) => Ok(ClaimState::Unacknowledged),
            // Another process has made the parent meanwhile.
            Err(ZooKeeperError::Reported(Error::NodeExists)) => Ok(self.note(ClaimState::Absent)),
            Err(ZooKeeperError::Reported(Error::NoNode)) => {
                let options = CreateMode::Persistent.with_acls(self.acls());
                let root = &self.session.options.root;
                self.insist(|| self.client.mkdir(root, &options)).await?;
                Ok(self.note(ClaimState::Absent))
            }
            Err(error) => Err(error),
        }
    }

    /// The node that this session made for the claim. Nodes of an earlier session are removed: they
    /// end with that session, and cannot be relied on.
    async fn find(&self) -> Result<ClaimState, ZooKeeperError> {
        let mut found = ClaimState::Absent;
        for name in self.queue().await?.into_iter().filter(|name| name.starts_with(&self.prefix)) {
            match self.made_by(&name).await? {
                Some((made_by, owner))
                    if owner == self.session.id && found == ClaimState::Absent =>
                {
                    found = ClaimState::Present(Node { name, made_by });
                }
                Some(_) => drop(self.delete(&name).await?),
                None => {}
            }
        }
        Ok(found)
    }

    /// The nodes before this one. `None` if it is not in the queue.
    async fn ahead_of(&self, node: &Node) -> Result<Option<Vec<String>>, ZooKeeperError> {
        let mut queue = self.queue().await?;
        let Some(at) = queue.iter().position(|name| *name == node.name) else { return Ok(None) };
        queue.truncate(at);
        // The claim must not wait for another node of its own, from an earlier session or made
        // twice.
        for stale in queue.extract_if(.., |name| name.starts_with(&self.prefix)) {
            self.delete(&stale).await?;
        }
        Ok(Some(queue))
    }

    /// Waits until this node may be gone, or until `ends`.
    async fn wait_for(&mut self, name: &str, ends: Instant) -> Result<(), ZooKeeperError> {
        let Some((_, watcher)) = self.watch(name).await? else { return Ok(()) };
        let mut liveness = self.session.liveness.clone();
        select! {
            _ = watcher.changed() => {}
            () = liveness.ended() => return Err(ZooKeeperError::Ended),
            () = sleep_until(ends) => {}
            // In case the watch was lost.
            () = sleep(self.session.granted) => {}
        }
        self.until = Instant::now() + self.session.options.timeout;
        Ok(())
    }

    /// A watch for the next change of a node, if it exists.
    ///
    /// It reads the node instead of asking whether it exists: that would leave a watch on a removed
    /// node, which never comes back.
    async fn watch(&self, name: &str) -> Result<Option<(Stat, OneshotWatcher)>, ZooKeeperError> {
        let path = self.path(name);
        match self.insist(|| self.client.get_and_watch_data(&path)).await {
            Err(ZooKeeperError::Reported(Error::NoNode)) => Ok(None),
            watched => watched.map(|(_, stat, watcher)| Some((stat, watcher))),
        }
    }

    /// Whether another claim holds the key or waits for it. This read saves a write, because tries
    /// often find the key busy.
    async fn is_wanted(&self) -> Result<bool, ZooKeeperError> {
        Ok(self.queue().await?.iter().any(|name| !name.starts_with(&self.prefix)))
    }

    async fn queue(&self) -> Result<Vec<String>, ZooKeeperError> {
        match self.insist(|| self.client.list_children(&self.parent)).await {
            Err(ZooKeeperError::Reported(Error::NoNode)) => Ok(Vec::new()),
            children => children.map(queue_order),
        }
    }

    /// The transaction that made a node, and the session that owns it.
    async fn made_by(&self, name: &str) -> Result<Option<(u64, i64)>, ZooKeeperError> {
        let path = self.path(name);
        let stat = self.insist(|| self.client.check_stat(&path)).await?;
        Ok(stat.map(|stat| (stat.czxid as u64, stat.ephemeral_owner)))
    }

    /// Removes a node. Returns whether it existed.
    async fn delete(&self, name: &str) -> Result<bool, ZooKeeperError> {
        let path = self.path(name);
        let mut was_asked = false;
        loop {
            match self.ask(self.client.delete(&path, None)).await {
                Err(ZooKeeperError::Lost(_)) => was_asked = true,
                // An earlier request of this loop may have removed it.
                Err(ZooKeeperError::Reported(Error::NoNode)) => return Ok(was_asked),
                deleted => return deleted.map(|()| true),
            }
            sleep(PAUSE).await;
        }
    }

    /// Repeats an idempotent request as long as the connection breaks.
    async fn insist<T, F>(&self, request: impl Fn() -> F) -> Result<T, ZooKeeperError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            match self.ask(request()).await {
                Err(ZooKeeperError::Lost(_)) => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ZooKeeperError> {
        let mut liveness = self.session.liveness.clone();
        let limit = self.session.options.timeout;
        select! {
            biased;
            () = liveness.ended() => Err(ZooKeeperError::Ended),
            () = sleep_until(self.until) => Err(ZooKeeperError::TimedOut(limit)),
            answer = answer => Ok(answer?),
        }
    }

    fn note(&self, state: ClaimState) -> ClaimState {
        self.session.claims.note(self.token, state.clone());
        state
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    fn acls(&self) -> Acls<'static> {
        if self.session.options.private { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

/// The pause between a request whose connection broke and the next one.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
