//! The connection to one sentinel.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{ProtocolVersion, PushInfo, PushKind, Value};
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::super::address::ServerAddress;
use super::super::connect_error::{ConnectError, DialStep};
use super::super::dial::{Dialed, Dialer};
use super::answer::SentinelAnswer;
use crate::jitter::jitter;

/// Keeps a connection to a sentinel, and answers questions over it. It ends when there is nothing
/// left that can ask.
pub(super) struct SentinelLink {
    pub(super) dialer: Dialer,
    pub(super) address: ServerAddress,
    pub(super) service: Arc<str>,
    /// How long connecting or an answer may take.
    pub(super) timeout: Duration,
    pub(super) questions: mpsc::Receiver<SentinelQuestion>,
    /// Told when the primary may be another one.
    pub(super) hints: mpsc::Sender<()>,
}

/// Asks for the primary. The answer is none if the sentinel does not know the service.
pub(super) type SentinelQuestion = oneshot::Sender<Result<Option<SentinelAnswer>, ConnectError>>;

/// What a sentinel reports by itself.
#[derive(Debug, PartialEq)]
enum SentinelEvent {
    Switched,
    Disconnected,
}

impl SentinelLink {
    pub(super) async fn run(mut self) {
        let mut failures = 0;
        loop {
            let (events, heard) = mpsc::unbounded_channel();
            let step = DialStep::new("connection");
            let connecting = self.connect(events, &step);
            let lives_on = match step.within(self.timeout, connecting).await {
                Ok(dialed) => {
                    failures = 0;
                    // A message may have been missed while there was no connection.
                    let _ = self.hints.try_send(());
                    self.serve(dialed, heard).await
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(target: "bellwether::store", sentinel = %self.address, %error, "no connection to a sentinel");
                    self.refuse(&error, pause(failures, jitter())).await
                }
            };
            if !lives_on {
                return;
            }
        }
    }

    /// Connects, and subscribes to the message about a failover.
    async fn connect(
        &self,
        events: mpsc::UnboundedSender<SentinelEvent>,
        step: &DialStep,
    ) -> Result<Dialed, ConnectError> {
        let service = Arc::clone(&self.service);
        let pushes = Arc::new(move |push: PushInfo| {
            if let Some(event) = event(&push, &service) {
                events.send(event).map_err(|_| SendError)?;
            }
            Ok::<(), SendError>(())
        });
        let protocol = ProtocolVersion::RESP3;
        let mut dialed = self.dialer.dial(&self.address, protocol, Some(pushes), step).await?;
        dialed.socket.subscribe(SWITCHED).await?;
        Ok(dialed)
    }

    /// Answers questions until the connection ends. Returns whether there may be more questions.
    async fn serve(
        &mut self,
        mut dialed: Dialed,
        mut events: mpsc::UnboundedReceiver<SentinelEvent>,
    ) -> bool {
        loop {
            select! {
                question = self.questions.recv() => {
                    let Some(question) = question else { return false };
                    // The caller may have its answer from other sentinels by now.
                    if question.is_closed() {
                        continue;
                    }
                    let step = DialStep::new("answer");
                    step.next("answer", &self.address);
                    let asking = ask(&mut dialed.socket, &self.service);
                    let answer = step.within(self.timeout, asking).await;
                    let has_failed = answer.is_err();
                    let _ = question.send(answer);
                    if has_failed {
                        return true;
                    }
                }
                event = events.recv() => match event {
                    // If the channel is full, a hint is under way.
                    Some(SentinelEvent::Switched) => { let _ = self.hints.try_send(()); }
                    Some(SentinelEvent::Disconnected) | None => return true,
                },
            }
        }
    }

    /// Answers questions by an error during a pause. Returns whether there may be more questions.
    async fn refuse(&mut self, error: &ConnectError, pause: Duration) -> bool {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            select! {
                () = &mut pause => return true,
                question = self.questions.recv() => {
                    let Some(question) = question else { return false };
                    let _ = question.send(Err(error.clone()));
                }
            }
        }
    }
}

async fn ask(
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

/// What a push message is about.
fn event(push: &PushInfo, service: &str) -> Option<SentinelEvent> {
    match (&push.kind, push.data.as_slice()) {
        (PushKind::Disconnection, _) => Some(SentinelEvent::Disconnected),
        // The name of the service and two addresses.
        (PushKind::Message, [_, Value::BulkString(message)]) => {
            let name = message.split(|byte| *byte == b' ').next()?;
            (name == service.as_bytes()).then_some(SentinelEvent::Switched)
        }
        _ => None,
    }
}

fn pause(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_PAUSE).mul_f64(0.5 + jitter / 2.0)
}

/// The channel of sentinels about primaries that have changed.
const SWITCHED: &str = "+switch-master";
/// The pause after the first failure to connect to a sentinel.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between attempts to connect to a sentinel.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
