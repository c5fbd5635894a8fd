//! The subscriber: receives the messages that scripts publish to the processes that wait.
//!
//! ```text
//! a script finds a lease or lock busy ──► the mark of the client, at the lease or lock
//! the script that ends it ──► PUBLISH bw:<namespace>:waiter:<mark> ──► SubscriberTask ──► Watchers
//! ```
//!
//! Each client has a mark and a channel of its own. So only what a process waits for costs messages,
//! and only the processes that wait receive them. Messages that are lost with the
//! connection are replaced by a notification of all watches.
//!
//! The connection is one of its own and speaks RESP2. It sends no other command, so no message can
//! be taken for the reply to one. In a cluster it leads to any node, because the nodes pass messages
//! on to each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use redis::Msg;
use redis::aio::PubSubStream;
use tokio::select;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::client_core::ClientCore;
use super::cluster::ServerGroup;
use super::dial::DialStep;
use super::one_task::OneTask;
use super::retry_pauses::RetryPauses;
use super::server_error::ServerError;
use bellwether::warn_throttled;

/// The subscription of a client. It ends when this is dropped.
pub(super) struct Subscriber {
    /// It is left at leases and locks that the client waits for.
    mark: String,
    task: SubscriberTask,
    running: OneTask,
}

/// Keeps the subscription.
#[derive(Clone)]
struct SubscriberTask {
    parts: Arc<ClientCore>,
    servers: ServerGroup,
    channel: String,
    /// Whether it is subscribed, or the last attempt has failed. None while it connects.
    state: Arc<watch::Sender<Option<bool>>>,
}

impl Subscriber {
    /// It subscribes when its mark is first needed.
    pub(super) fn new(parts: &Arc<ClientCore>, servers: ServerGroup) -> Self {
        let mut mark = Uuid::new_v4().simple().to_string();
        mark.truncate(MARK);
        let channel = parts.names.waiter_channel(&mark);
        let state = Arc::new(watch::Sender::new(None));
        let task = SubscriberTask { parts: Arc::clone(parts), servers, channel, state };
        Self { mark, task, running: OneTask::default() }
    }

    /// The mark to leave. Empty without a subscription, which is begun then.
    pub(super) fn mark(&self) -> Vec<u8> {
        if self.is_subscribed() {
            return self.mark.clone().into_bytes();
        }
        self.start();
        Vec::new()
    }

    pub(super) fn is_subscribed(&self) -> bool {
        *self.task.state.borrow() == Some(true)
    }

    /// Subscribes, and waits until that has succeeded or failed. Returns whether it has succeeded.
    pub(super) async fn connect(&self) -> bool {
        let mut state = self.task.state.subscribe();
        self.start();
        let settled = state.wait_for(Option::is_some);
        let settled = timeout(self.task.parts.options.connect_timeout, settled).await;
        settled.is_ok_and(|state| state.is_ok_and(|state| *state == Some(true)))
    }

    fn start(&self) {
        self.running.start(|| self.task.clone().run());
    }
}

impl SubscriberTask {
    /// Subscribes, receives until the connection or the primary is gone, and begins again. Ends when the
    /// [`Subscriber`] is dropped.
    async fn run(self) {
        let mut failures = 0;
        loop {
            let begun_after = self.parts.failovers.count();
            let step = DialStep::new("answer of a sentinel");
            let limit = self.parts.options.connect_timeout;
            match step.within(limit, self.subscribe(&step)).await {
                Ok(messages) => {
                    failures = 0;
                    self.receive(messages, begun_after).await;
                    sleep(PAUSES.after(1)).await;
                }
                Err(error) => {
                    failures += 1;
                    sleep(self.failed(&error).after(failures)).await;
                }
            }
        }
    }

    async fn subscribe(&self, step: &DialStep) -> Result<PubSubStream, ServerError> {
        let address = self.servers.address().await?;
        self.parts.options.dialer.subscribe(&address, &self.channel, step).await
    }

    /// Receives messages until the connection ends or another server is the primary.
    async fn receive(&self, mut messages: PubSubStream, begun_after: u64) {
        self.state.send_replace(Some(true));
        let _subscribed = Subscribed(self);
        tracing::debug!("waiters are told by messages");
        // Those of this moment have left no mark.
        self.parts.setup.watchers.tell_all();
        let receiving = async {
            while let Some(message) = messages.next().await {
                self.parts.pushes.fetch_add(1, Ordering::Relaxed);
                self.tell(&message);
            }
        };
        let switched = self.parts.failovers.switched.notified();
        if self.parts.failovers.count() == begun_after {
            select! {
                biased;
                () = receiving => {}
                () = switched => {}
            }
        }
    }

    /// Notifies the watches of the key that a message names.
    fn tell(&self, message: &Msg) {
        let setup = &self.parts.setup;
        let Some((digest, more)) = self.parts.names.read(message.get_payload_bytes()) else {
            return;
        };
        let stored = setup.observers.iter().find_map(|observer| {
            let now = self.servers.with_owner(&digest, |node| node?.state.clock.now());
            observer.read(&digest, more, now?)
        });
        setup.watchers.tell(&digest, stored);
    }

    /// Notes that an attempt has failed. Returns the pauses before the next one.
    fn failed(&self, error: &ServerError) -> RetryPauses {
        self.state.send_replace(Some(false));
        if matches!(error, ServerError::Reported(error) if !error.is_io_error()) {
            warn_throttled!(target: "bellwether::store", %error, "redis refuses a subscription: waiters will poll");
            return PAUSES_IF_REFUSED;
        }
        tracing::debug!(%error, "no subscription: waiters poll");
        PAUSES
    }
}

/// The time of a subscription. Before and after it, messages may have been lost.
struct Subscribed<'a>(&'a SubscriberTask);

impl Drop for Subscribed<'_> {
    fn drop(&mut self) {
        self.0.state.send_replace(None);
        self.0.parts.setup.watchers.tell_all();
    }
}

/// The length of a mark: hexadecimal digits. The scripts have the same value.
const MARK: usize = 16;

/// Those between attempts, and before a connection is replaced. Waiters poll meanwhile.
const PAUSES: RetryPauses = RetryPauses::new(FIRST_PAUSE, Duration::from_secs(2));

/// The same if the server refuses. That may last until a person allows it, or be over in a moment.
const PAUSES_IF_REFUSED: RetryPauses = RetryPauses::new(FIRST_PAUSE, Duration::from_secs(5));

const FIRST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn the_scripts_have_the_same_marks_and_channels() {
        let prelude = include_str!("prelude.lua");
        assert!(prelude.contains(&format!("local mark_length, most_marks = {MARK}, 1000\n")));
        let channel = Names::new("shop").waiter_channel("0123456789abcdef");
        assert_eq!(channel, "bw:shop:waiter:0123456789abcdef");
        assert!(prelude.contains("'^bw:[^:]+:') .. 'waiter:'"));
    }
}
