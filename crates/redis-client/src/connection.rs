//! Connections: all requests share one, and it knows whether it is usable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::{io, mem};

use redis::aio::{MultiplexedConnection, SendError as PushRefused};
use redis::{Pipeline, PushInfo, PushKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::dial::Driver;
use super::events::{Events, ServerEvent};
use super::failovers::Failovers;
use super::in_flight::{InFlight, Unanswered};
use super::losses::NodeLosses;
use super::request::{Outgoing, RedisRequest};

/// A connection to a server. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: MultiplexedConnection,
    pub(super) _driver: Arc<Driver>,
    /// Whether it has authenticated. If the server does not accept that any more, another connection
    /// has to be opened, with the credentials of that time.
    pub(super) has_credentials: bool,
    pub(super) state: Arc<ConnectionState>,
    pub(super) failovers: Arc<Failovers>,
    /// The number of failovers when it was begun.
    pub(super) begun_after: u64,
}

/// Whether a connection is usable. Its push receiver shares this.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// The place of its node.
    pub(super) node: u16,
    pub(super) number: u64,
    is_broken: AtomicBool,
    in_flight: Arc<InFlight>,
    /// Told about a tracked connection.
    events: Option<Arc<Events>>,
    /// Told when it breaks. Set when it is in use.
    losses: OnceLock<Arc<NodeLosses>>,
}

impl Connection {
    /// Takes it out of use: the next request opens another one. Requests that are under way on it
    /// still end by themselves.
    pub(super) fn give_up(&self) {
        self.state.give_up();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state.is_broken.load(Ordering::Relaxed) || self.failovers.count() != self.begun_after
    }

    /// Sends requests as one message, and waits for the replies until the deadline. A reply to several
    /// may be an error; that to one is the error of all.
    ///
    /// A server that does not know a script (after a restart or `SCRIPT FLUSH`) is sent its text.
    pub(super) async fn send(
        &self,
        outgoing: Outgoing<'_>,
        deadline: Instant,
    ) -> Result<Vec<Value>, SendError> {
        let requests = outgoing.requests;
        let mut replies = self.exchange(outgoing, false, deadline).await?;
        let places = (0..).zip(&replies).filter(|(_, reply)| is_of_unknown_script(reply));
        let unknown: Vec<usize> = places.map(|(place, _)| place).collect();
        if !unknown.is_empty() {
            let again: Vec<_> = unknown.iter().map(|place| requests[*place]).collect();
            let again = Outgoing { requests: &again, ..outgoing };
            let by_text = self.exchange(again, true, deadline).await?;
            unknown.into_iter().zip(by_text).for_each(|(place, reply)| replies[place] = reply);
        }
        if let [reply] = replies.as_mut_slice() {
            *reply = mem::replace(reply, Value::Nil).extract_error()?;
        }
        Ok(replies)
    }

    /// The replies to requests, errors among them.
    ///
    /// Each is one to three commands: `ASKING` before it, because the next command on the connection
    /// uses that up, whichever request it is of, and one `TIME` after all of them.
    async fn exchange(
        &self,
        Outgoing { requests, asks }: Outgoing<'_>,
        by_text: bool,
        deadline: Instant,
    ) -> Result<Vec<Value>, SendError> {
        let mut socket = self.socket.clone();
        let is_timed = requests.iter().any(|request| request.is_timed);
        if let ([request], false, false) = (requests, asks, is_timed) {
            let command = request.packed(by_text);
            let reply = self.state.reply(socket.send_packed_command(&command), deadline).await?;
            return Ok(vec![reply]);
        }
        let mut pipeline = Pipeline::with_capacity(requests.len() + 2);
        for request in requests {
            if asks {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(request.packed(by_text));
        }
        if is_timed {
            pipeline.cmd("TIME");
        }
        pipeline.ignore_errors();
        let replies = self.state.reply(pipeline.query_async(&mut socket), deadline).await?;
        Ok(fold(requests, asks, is_timed, replies))
    }
}

/// The reply to each request, of the replies to their commands.
fn fold(
    requests: &[&RedisRequest<'_>],
    asks: bool,
    is_timed: bool,
    mut replies: Vec<Value>,
) -> Vec<Value> {
    let time = if is_timed { replies.pop() } else { None };
    let step = 1 + usize::from(asks);
    let replies = replies.into_iter().skip(step - 1).step_by(step);
    let folded = requests.iter().zip(replies).map(|(request, reply)| match &time {
        Some(time) if request.is_timed => with_time(reply, time),
        _ => reply,
    });
    folded.collect()
}

fn with_time(reply: Value, time: &Value) -> Value {
    match (reply, time) {
        (Value::ServerError(error), _) => Value::ServerError(error),
        (_, Value::ServerError(error)) => Value::ServerError(error.clone()),
        (reply, time) => Value::Array(vec![reply, time.clone()]),
    }
}

fn is_of_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum SendError {
    /// The deadline has passed.
    Late,
    /// The client or the server reports an error.
    Failed(RedisError),
}

impl From<RedisError> for SendError {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

impl ConnectionState {
    pub(super) fn new(node: u16, number: u64, events: Option<Arc<Events>>) -> Self {
        let is_broken = AtomicBool::new(false);
        let losses = OnceLock::new();
        Self { node, number, is_broken, in_flight: Arc::default(), events, losses }
    }

    /// From now on it is in use, and these losses are told when it breaks.
    pub(super) fn tell_when_broken(&self, losses: &Arc<NodeLosses>) {
        // It is opened once.
        _ = self.losses.set(Arc::clone(losses));
    }

    fn give_up(&self) {
        let was_broken = self.is_broken.swap(true, Ordering::Relaxed);
        if !was_broken && let Some(losses) = self.losses.get() {
            losses.broke();
        }
        if let Some(events) = &self.events {
            events.tell(ServerEvent::Disconnected { node: self.node, connection: self.number });
        }
    }

    /// Waits for a reply until the deadline, or until the connection ends. Without the latter, a
    /// request that is queued at that moment could stay unanswered as long as there is a clone. Over
    /// RESP2 the end is not reported, and only the deadline ends the wait.
    async fn reply<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        deadline: Instant,
    ) -> Result<T, SendError> {
        let sent_at = self.events.is_some().then(Instant::now);
        let reply = match self.in_flight.reply(deadline, reply).await {
            Ok(reply) => reply?,
            Err(Unanswered::Ended) => {
                let ended = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
                return Err(ended.into());
            }
            Err(Unanswered::Late) => return Err(SendError::Late),
        };
        if let (Some(events), Some(sent_at)) = (&self.events, sent_at) {
            let (node, connection) = (self.node, self.number);
            events.tell(ServerEvent::Confirmed { node, connection, sent_at });
        }
        Ok(reply)
    }

    /// The connection has ended.
    fn end(&self) {
        self.give_up();
        self.in_flight.end();
    }
}

/// Receives the push messages of a connection. It is dropped with the connection, also if the runtime
/// of that ends.
pub(super) struct PushReceiver(pub(super) Arc<ConnectionState>);

impl PushReceiver {
    pub(super) fn receive(&self, push: &PushInfo) -> Result<(), PushRefused> {
        if push.kind == PushKind::Disconnection {
            self.0.end();
        }
        if let Some(events) = &self.0.events {
            events.receive(self.0.node, push);
        }
        Ok(())
    }
}

impl Drop for PushReceiver {
    fn drop(&mut self) {
        self.0.end();
        // Messages may have been lost, and no more will come.
        self.0.events.as_ref().inspect(|events| events.wake_where(|_| true));
    }
}

#[cfg(test)]
mod tests {
    use redis::ServerError;

    use super::*;

    fn request(is_timed: bool) -> RedisRequest<'static> {
        let request = RedisRequest::command("MGET", [], "testing");
        if is_timed { request.timed() } else { request }
    }

    fn folded(timed: &[bool], asks: bool, replies: &[i64]) -> Vec<Value> {
        let requests: Vec<_> = timed.iter().map(|timed| request(*timed)).collect();
        let requests: Vec<_> = requests.iter().collect();
        let replies = replies.iter().copied().map(Value::Int).collect();
        fold(&requests, asks, timed.contains(&true), replies)
    }

    #[test]
    fn each_request_has_its_own_reply_and_the_time_if_it_needs_that() {
        let timed = |reply| Value::Array(vec![Value::Int(reply), Value::Int(9)]);
        assert_eq!(folded(&[false], true, &[0, 1]), [Value::Int(1)]);
        assert_eq!(folded(&[true], true, &[0, 1, 9]), [timed(1)]);
        assert_eq!(folded(&[false, true], false, &[1, 2, 9]), [Value::Int(1), timed(2)]);
    }

    #[test]
    fn an_error_stays_as_it_is() {
        let error = || -> Option<ServerError> {
            match redis::parse_redis_value(b"-OOM full\r\n") {
                Ok(Value::ServerError(error)) => Some(error),
                _ => None,
            }
        };
        let error = || Value::ServerError(error().expect("an error reply"));
        assert_eq!(with_time(error(), &Value::Int(9)), error());
        assert_eq!(with_time(Value::Int(1), &error()), error());
    }
}
