//! The connection to one sentinel.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{ProtocolVersion, PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::super::address::ServerAddress;
use super::super::connect_error::{ConnectError, DialStep};
use super::super::dial::{Dialed, Dialer};
use super::super::retry_pauses::RetryPauses;
use super::answer::SentinelAnswer;

/// Keeps a connection to a sentinel, which is subscribed to the message about a failover.
pub(super) struct SentinelLink {
    pub(super) dialer: Dialer,
    pub(super) address: ServerAddress,
    pub(super) service: Arc<str>,
    /// How long connecting may take.
    pub(super) timeout: Duration,
    /// Notified when the primary may be another one.
    pub(super) hints: Arc<Notify>,
    pub(super) state: watch::Sender<LinkState>,
}

/// What questions are sent over, or why there is nothing. None while it connects.
pub(super) type LinkState = Option<Result<OpenLink, ConnectError>>;

#[derive(Clone)]
pub(super) struct OpenLink {
    socket: MultiplexedConnection,
    /// Notified when the connection is lost.
    lost: Arc<Notify>,
}

impl SentinelLink {
    pub(super) async fn run(self) {
        let mut failures = 0;
        loop {
            self.state.send_replace(None);
            let began = Instant::now();
            let Err(error) = self.hold().await;
            tracing::debug!(target: "bellwether::store", sentinel = %self.address, %error, "no connection to a sentinel");
            self.state.send_replace(Some(Err(error)));
            // One that was in use is replaced at once.
            failures = if began.elapsed() > LONGEST_PAUSE { 0 } else { failures + 1 };
            sleep(PAUSES.after(failures)).await;
        }
    }

    /// Connects, and holds the connection until it is lost.
    async fn hold(&self) -> Result<Infallible, ConnectError> {
        let lost = Arc::<Notify>::default();
        let step = DialStep::new("connection");
        let connecting = self.connect(Arc::clone(&lost), &step);
        let Dialed { socket, driver: _driver, .. } = step.within(self.timeout, connecting).await?;
        self.state.send_replace(Some(Ok(OpenLink { socket, lost: Arc::clone(&lost) })));
        // A message may have been missed while there was no connection.
        self.hints.notify_one();
        lost.notified().await;
        Err(ConnectError::unavailable("the connection was lost"))
    }

    async fn connect(&self, lost: Arc<Notify>, step: &DialStep) -> Result<Dialed, ConnectError> {
        let (service, hints) = (Arc::clone(&self.service), Arc::clone(&self.hints));
        let pushes = Arc::new(move |push: PushInfo| {
            match (&push.kind, push.data.as_slice()) {
                (PushKind::Disconnection, _) => lost.notify_one(),
                (PushKind::Message, [_, Value::BulkString(message)])
                    if is_about(message, &service) =>
                {
                    hints.notify_one();
                }
                _ => {}
            }
            Ok::<(), SendError>(())
        });
        let protocol = ProtocolVersion::RESP3;
        let mut dialed = self.dialer.dial(&self.address, protocol, Some(pushes), step).await?;
        dialed.socket.subscribe(SWITCHED).await?;
        Ok(dialed)
    }
}

/// Asks for the primary, once the sentinel is connected to. None if it does not know the service.
pub(super) async fn ask(
    mut link: watch::Receiver<LinkState>,
    service: &str,
    timeout: Duration,
) -> Result<Option<SentinelAnswer>, ConnectError> {
    let state = link.wait_for(Option::is_some).await.ok().and_then(|state| state.clone());
    let ended = || Err(ConnectError::unavailable("the runtime of its connection has ended"));
    let OpenLink { mut socket, lost } = state.unwrap_or_else(ended)?;
    let answer = DialStep::new("answer").within(timeout, query(&mut socket, service)).await;
    answer.inspect_err(|_| lost.notify_one())
}

async fn query(
    socket: &mut MultiplexedConnection,
    service: &str,
) -> Result<Option<SentinelAnswer>, ConnectError> {
    let mut ask = redis::pipe();
    ask.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    ask.cmd("SENTINEL").arg("MASTER").arg(service).ignore_errors();
    let replies: Vec<Value> = ask.query_async(socket).await?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    let address = replies.next().transpose()?.unwrap_or(Value::Nil);
    // Without the permission for it, the epoch is not known.
    let details = replies.next().and_then(Result::ok).unwrap_or(Value::Nil);
    Ok(SentinelAnswer::read(address, details))
}

/// Whether a message is about a service: its name is followed by two addresses.
fn is_about(message: &[u8], service: &str) -> bool {
    message.split(|byte| *byte == b' ').next() == Some(service.as_bytes())
}

/// The channel of sentinels about primaries that have changed.
const SWITCHED: &str = "+switch-master";
/// Those between attempts to connect to a sentinel.
const PAUSES: RetryPauses = RetryPauses::new(Duration::from_millis(100), LONGEST_PAUSE);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
