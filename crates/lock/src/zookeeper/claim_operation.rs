//! Visit: what is done for one claim at its key, over one session.

use std::future::Future;
use std::time::Duration;

use bellwether::Digest;
use tokio::select;
use tokio::time::{Instant, sleep, sleep_until};
use zookeeper_client::{Acls, Client, CreateMode, Error, OneshotWatcher};

use super::claim_table::{Known, Node};
use super::error::ZooKeeperError;
use super::node_names::{line, prefix};
use super::server_session::ServerSession;
use crate::{Attempt, Busy, Grant, Renew, Request, Token};

/// A claim at its key.
pub(super) struct ClaimOperation<'a> {
    session: &'a ServerSession,
    client: Client,
    token: Token,
    digest: Digest,
    /// The parent of all nodes of the key.
    parent: String,
    /// What the names of the claim's own nodes begin with.
    prefix: String,
    /// Until when the server has to answer.
    until: Instant,
}

/// The position of a node in the queue.
enum QueuePosition {
    First,
    /// So many do, and this one is the last of them.
    Behind(u32, String),
    /// The node itself is not there.
    Nowhere,
}

impl<'a> ClaimOperation<'a> {
    /// # Errors
    /// If the session has ended.
    pub(super) fn new(
        session: &'a ServerSession,
        token: Token,
        digest: Digest,
    ) -> Result<Self, ZooKeeperError> {
        let client = session.client().ok_or(ZooKeeperError::Ended)?;
        let (parent, until) =
            (session.names.parent(&digest), Instant::now() + session.settings.timeout);
        Ok(Self { session, client, token, digest, parent, prefix: prefix(token), until })
    }

    /// Stands in line, and waits there as long as may be.
    pub(super) async fn acquire(
        &mut self,
        request: &Request,
        ends: Instant,
    ) -> Result<Attempt, ZooKeeperError> {
        let heard_of_until = ends + self.session.granted + 2 * self.session.settings.timeout;
        let asking = self.session.places.ask(self.token, self.digest, heard_of_until);
        let asking = asking.ok_or(ZooKeeperError::Released)?;
        let mut known = asking.known.clone();
        let is_try = request.patience.is_zero();
        if is_try && known == Known::Absent && self.is_wanted().await? {
            self.session.places.forget(self.token);
            return Ok(Attempt::Busy(Busy::new()));
        }
        loop {
            let node = self.stand(known).await?;
            match self.look(&node).await? {
                QueuePosition::First => return self.grant(&node),
                QueuePosition::Nowhere => known = self.note(Known::Absent),
                QueuePosition::Behind(ahead, _) if is_try => {
                    self.give_up().await;
                    return Ok(Attempt::Busy(Busy::new().behind(ahead)));
                }
                QueuePosition::Behind(ahead, _) if Instant::now() >= ends => {
                    return Ok(Attempt::Busy(Busy::new().behind(ahead)));
                }
                QueuePosition::Behind(_, last) => {
                    self.wait_for(&last, ends).await?;
                    known = Known::There(node);
                }
            }
        }
    }

    /// Whether the claim still holds what it was granted.
    pub(super) async fn renew(&self) -> Result<Renew, ZooKeeperError> {
        let Some(node) = self.session.places.held(self.token) else { return Ok(Renew::Lost) };
        if self.made_by(&node.name).await? == Some((node.made_by, self.session.id)) {
            return Ok(Renew::Held);
        }
        self.note(Known::Absent);
        Ok(Renew::Lost)
    }

    /// What tells of the next change of the node that the claim holds by. None if it has gone.
    ///
    /// It is read, as by [`wait_for`](Self::wait_for).
    pub(super) async fn watched(&self) -> Result<Option<OneshotWatcher>, ZooKeeperError> {
        let Some(node) = self.session.places.held(self.token) else { return Ok(None) };
        let path = self.path(&node.name);
        let (stat, watcher) = match self.insist(|| self.client.get_and_watch_data(&path)).await {
            Ok((_, stat, watcher)) => (stat, watcher),
            Err(ZooKeeperError::Reported(Error::NoNode)) => {
                self.note(Known::Absent);
                return Ok(None);
            }
            Err(trouble) => return Err(trouble),
        };
        let is_ours = (stat.czxid as u64, stat.ephemeral_owner) == (node.made_by, self.session.id);
        Ok(is_ours.then_some(watcher))
    }

    /// Removes what the claim has there, and says whether that held the key.
    pub(super) async fn leave(&self) -> Result<bool, ZooKeeperError> {
        if let Some(node) = self.session.places.held(self.token) {
            return self.delete(&node.name).await;
        }
        // What is not known for sure is looked for. It may be another session's, too.
        let line = self.line().await?;
        let was_first = line.first().is_some_and(|first| first.starts_with(&self.prefix));
        for name in line.iter().filter(|name| name.starts_with(&self.prefix)) {
            self.delete(name).await?;
        }
        Ok(was_first)
    }

    fn grant(&self, node: &Node) -> Result<Attempt, ZooKeeperError> {
        if !self.session.places.hold(self.token) {
            return Err(ZooKeeperError::Released);
        }
        let grant = Grant::by_session(self.session.liveness());
        Ok(Attempt::Granted(grant.fenced(node.made_by)))
    }

    /// Leaves, now or as soon as the server answers.
    async fn give_up(&self) {
        self.session.places.leave(self.token);
        if self.leave().await.is_ok() {
            self.session.places.forget(self.token);
        }
    }

    /// The claim's own node, which is made if there is none.
    ///
    /// A node whose making was not answered is looked for before another one is made.
    async fn stand(&self, mut known: Known) -> Result<Node, ZooKeeperError> {
        loop {
            if known == Known::Perhaps {
                known = self.note(self.find().await?);
            }
            if let Known::There(node) = known {
                return Ok(node);
            }
            if !self.session.places.may_stand(self.token) {
                return Err(ZooKeeperError::Released);
            }
            self.note(Known::Perhaps);
            known = match self.make().await {
                Ok(node) => self.note(Known::There(node)),
                Err(ZooKeeperError::Lost(_)) => Known::Perhaps,
                Err(ZooKeeperError::Reported(Error::NoNode)) => self.make_with_parent().await?,
                Err(trouble) => return Err(trouble),
            };
        }
    }

    async fn make(&self) -> Result<Node, ZooKeeperError> {
        let options = CreateMode::EphemeralSequential.with_acls(self.acls());
        let path = self.path(&self.prefix);
        let (stat, number) = self.ask(self.client.create(&path, b"", &options)).await?;
        Ok(Node { name: format!("{}{number}", self.prefix), made_by: stat.czxid as u64 })
    }

    /// The parent is made together with its first child: the server removes a container only when
    /// the last child has gone, so one that never had any would stay.
    async fn make_with_parent(&self) -> Result<Known, ZooKeeperError> {
        let mut writer = self.client.new_multi_writer();
        writer.add_create(&self.parent, b"", &CreateMode::Container.with_acls(self.acls()))?;
        let node = CreateMode::EphemeralSequential.with_acls(self.acls());
        writer.add_create(&self.path(&self.prefix), b"", &node)?;
        let commit = writer.commit();
        match self.ask(async { commit.await.map_err(Error::from) }).await {
            // Within a transaction, not every server says what it has made.
            Ok(_) | Err(ZooKeeperError::Lost(_)) => Ok(Known::Perhaps),
            // Another process has made it meanwhile.
            Err(ZooKeeperError::Reported(Error::NodeExists)) => Ok(self.note(Known::Absent)),
            Err(ZooKeeperError::Reported(Error::NoNode)) => {
                let options = CreateMode::Persistent.with_acls(self.acls());
                let root = self.session.names.root();
                self.insist(|| self.client.mkdir(root, &options)).await?;
                Ok(self.note(Known::Absent))
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// The node that was made for the claim in this session. What an earlier session left of it is
    /// removed: it goes with that session, and cannot be relied on.
    async fn find(&self) -> Result<Known, ZooKeeperError> {
        let mut found = Known::Absent;
        for name in self.line().await?.into_iter().filter(|name| name.starts_with(&self.prefix)) {
            match self.made_by(&name).await? {
                Some((made_by, owner)) if owner == self.session.id && found == Known::Absent => {
                    found = Known::There(Node { name, made_by });
                }
                Some(_) => drop(self.delete(&name).await?),
                None => {}
            }
        }
        Ok(found)
    }

    async fn look(&self, node: &Node) -> Result<QueuePosition, ZooKeeperError> {
        let mut line = self.line().await?;
        let Some(place) = line.iter().position(|name| *name == node.name) else {
            return Ok(QueuePosition::Nowhere);
        };
        line.truncate(place);
        // The claim's own, of an earlier session or made twice, must not be what it waits for.
        for stale in line.extract_if(.., |name| name.starts_with(&self.prefix)) {
            self.delete(&stale).await?;
        }
        let ahead = u32::try_from(line.len()).unwrap_or(u32::MAX);
        Ok(line.pop().map_or(QueuePosition::First, |last| QueuePosition::Behind(ahead, last)))
    }

    /// Waits until this node may be gone, or until the end.
    ///
    /// It is read, and not asked whether it exists: that would leave a watch on a node that is gone
    /// and never comes back.
    async fn wait_for(&mut self, name: &str, ends: Instant) -> Result<(), ZooKeeperError> {
        let path = self.path(name);
        let watched = self.insist(|| self.client.get_and_watch_data(&path)).await;
        let (_, _, watcher) = match watched {
            Err(ZooKeeperError::Reported(Error::NoNode)) => return Ok(()),
            watched => watched?,
        };
        let mut liveness = self.session.liveness();
        select! {
            _ = watcher.changed() => {}
            () = liveness.ended() => return Err(ZooKeeperError::Ended),
            () = sleep_until(ends) => {}
            // A watch that was lost costs this much.
            () = sleep(self.session.granted) => {}
        }
        self.until = Instant::now() + self.session.settings.timeout;
        Ok(())
    }

    /// Whether another claim wants the key. A look costs no write, and a try is often too late.
    async fn is_wanted(&self) -> Result<bool, ZooKeeperError> {
        Ok(self.line().await?.iter().any(|name| !name.starts_with(&self.prefix)))
    }

    async fn line(&self) -> Result<Vec<String>, ZooKeeperError> {
        match self.insist(|| self.client.list_children(&self.parent)).await {
            Err(ZooKeeperError::Reported(Error::NoNode)) => Ok(Vec::new()),
            children => children.map(line),
        }
    }

    /// Which transaction made a node, and whose it is.
    async fn made_by(&self, name: &str) -> Result<Option<(u64, i64)>, ZooKeeperError> {
        let path = self.path(name);
        let stat = self.insist(|| self.client.check_stat(&path)).await?;
        Ok(stat.map(|stat| (stat.czxid as u64, stat.ephemeral_owner)))
    }

    /// Whether it was there.
    async fn delete(&self, name: &str) -> Result<bool, ZooKeeperError> {
        let path = self.path(name);
        let mut was_asked = false;
        loop {
            match self.ask(self.client.delete(&path, None)).await {
                Err(ZooKeeperError::Lost(_)) => was_asked = true,
                // It may have been our own question that was not answered.
                Err(ZooKeeperError::Reported(Error::NoNode)) => return Ok(was_asked),
                deleted => return deleted.map(|()| true),
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks again as long as the connection breaks, what may be asked twice.
    async fn insist<T, F>(&self, question: impl Fn() -> F) -> Result<T, ZooKeeperError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            match self.ask(question()).await {
                Err(ZooKeeperError::Lost(_)) => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ZooKeeperError> {
        let mut liveness = self.session.liveness();
        let limit = self.session.settings.timeout;
        select! {
            biased;
            () = liveness.ended() => Err(ZooKeeperError::Ended),
            () = sleep_until(self.until) => Err(ZooKeeperError::TimedOut(limit)),
            answer = answer => Ok(answer?),
        }
    }

    fn note(&self, known: Known) -> Known {
        self.session.places.note(self.token, known.clone());
        known
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.parent)
    }

    fn acls(&self) -> Acls<'static> {
        if self.session.settings.private { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

/// Between a question that was lost and the next.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
