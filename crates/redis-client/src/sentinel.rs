//! Sentinel: which server is the primary, and when another one is.
//!
//! ```text
//! Connector ──► Sentinels::primary ──► questions ──► sentinels
//!                         ▲                              │ `+switch-master`
//! Failovers ◄── another ──┴────── one task ◄─────────────┘
//! ```
//!
//! All sentinels are asked at once, over connections for that question. The answer with the highest
//! configuration epoch is used, because a majority of the sentinels elects the one that raises the
//! epoch. Of answers with equal epochs, the most frequent one is used. So a sentinel that is cut off or
//! still names the old primary is overruled.
//!
//! The task runs while there is a client. It is subscribed to all sentinels, and asks whenever one
//! reports a failover or is subscribed to again.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::{MultiplexedConnection, SendError};
use redis::{PushInfo, Value, from_redis_value};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::address::{ServerAddress, ServersKind, list};
use super::client_core::ClientCore;
use super::dial::{DialStep, Dialer};
use super::one_task::OneTask;
use super::retry_pauses::RetryPauses;
use super::server_error::ServerError;
use bellwether::adapter::locked;
use bellwether::store::StoreErrorKind;

/// Asks the sentinels of a service for its primary, and follows it.
pub(super) struct Sentinels {
    service: Arc<SentinelService>,
    /// The task that follows the primary.
    following: OneTask,
}

/// A service, and how to connect to its sentinels.
struct SentinelService {
    name: String,
    parts: Arc<ClientCore>,
    dialer: Dialer,
    /// The primary that is used, and since when. Held to replace it, never across an `.await`.
    known: Mutex<Option<(SentinelAnswer, Instant)>>,
}

/// What a sentinel says about the primary of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentinelAnswer {
    primary: ServerAddress,
    /// Raised by the sentinel that was elected to do a failover.
    epoch: u64,
}

impl Sentinels {
    /// Those of the options, if there are any. They are connected to at the first question.
    pub(super) fn of(parts: &Arc<ClientCore>) -> Option<Self> {
        let options = &parts.options;
        let ServersKind::Sentinel { service } = &options.servers.kind else { return None };
        let login = options.sentinel_login.clone();
        let mut dialer = options.dialer.clone();
        (dialer.login, dialer.database) = (login, 0);
        let (name, parts, known) = (service.clone(), Arc::clone(parts), Mutex::default());
        let service = Arc::new(SentinelService { name, parts, dialer, known });
        Some(Self { service, following: OneTask::default() })
    }

    /// The address of the primary. If it is another one than before, all connections to the former
    /// one are ended.
    ///
    /// # Errors
    /// If no sentinel answers in time, or none knows the service.
    pub(super) async fn primary(&self) -> Result<ServerAddress, ServerError> {
        self.following.start(|| Arc::clone(&self.service).follow());
        self.service.primary().await
    }
}

impl SentinelService {
    async fn follow(self: Arc<Self>) {
        let hints = Notify::new();
        let subscribed = self.sentinels().iter().map(|it| self.subscribe(it, &hints));
        let follow = async {
            loop {
                hints.notified().await;
                if let Err(error) = self.primary().await {
                    tracing::debug!(target: "bellwether::store", %error, "the sentinels name no primary");
                }
            }
        };
        join(join_all(subscribed), follow).await;
    }

    fn sentinels(&self) -> &[ServerAddress] {
        &self.parts.options.servers.addresses
    }

    async fn primary(&self) -> Result<ServerAddress, ServerError> {
        let known: Vec<_> = self.answers().await?.into_iter().flatten().collect();
        let elected = elect(&mut locked(&self.known), &known, Instant::now());
        let Some((primary, is_another)) = elected else {
            let (sentinels, name) = (list(self.sentinels()), &self.name);
            let message = format!("the sentinels {sentinels} know no service `{name}`");
            return Err(ServerError::misconfigured(message));
        };
        if is_another {
            tracing::info!(target: "bellwether::store", %primary, "the sentinels name another primary");
            self.parts.failovers.switch();
        }
        Ok(primary)
    }

    /// The answers of a majority, and of those that answer shortly after. If a sentinel hangs, a
    /// request that needs the primary still has half of its timeout left. Without any answer,
    /// sentinels may be busy, and have as long as connecting may take.
    async fn answers(&self) -> Result<Vec<Option<SentinelAnswer>>, ServerError> {
        let mut asked: FuturesUnordered<_> =
            self.sentinels().iter().map(|address| self.ask(address)).collect();
        let (mut answers, mut error) = (Vec::new(), ServerError::unavailable("there is none"));
        let options = &self.parts.options;
        let mut deadline = Instant::now() + 2 * options.connect_timeout;
        while let Ok(Some(answer)) = timeout_at(deadline, asked.next()).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failed) => error = failed,
            }
            let rest = match answers.len() {
                0 => continue,
                answered if answered <= self.sentinels().len() / 2 => options.timeout / 2,
                _ => GRACE,
            };
            deadline = deadline.min(Instant::now() + rest);
        }
        if answers.is_empty() { Err(self.unanswered(error)) } else { Ok(answers) }
    }

    /// The answer of one sentinel. None if it does not know the service.
    async fn ask(&self, address: &ServerAddress) -> Result<Option<SentinelAnswer>, ServerError> {
        let step = DialStep::new("connection");
        let asked = async {
            let (pushes, heard) = (Arc::new(ignored), Default::default());
            let dialed = self.dialer.dial(address, Some(pushes), heard, pending(), &step);
            let (mut socket, _tasks) = dialed.await?;
            step.next("answer", address);
            let mut ask = redis::pipe();
            ask.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
            ask.cmd("SENTINEL").arg("MASTER").arg(&self.name).ignore_errors();
            let replies: Vec<Value> = ask.query_async(&mut socket).await?;
            let mut replies = replies.into_iter().map(Value::extract_error);
            let primary = replies.next().transpose()?.unwrap_or(Value::Nil);
            // Without the permission for it, the epoch is not known.
            let details = replies.next().and_then(Result::ok).unwrap_or(Value::Nil);
            Ok(SentinelAnswer::read(primary, details))
        };
        step.within(self.parts.options.connect_timeout, asked).await
    }

    /// The error if no sentinel answers, by that of one of them.
    fn unanswered(&self, error: ServerError) -> ServerError {
        let message = || format!("no sentinel of {} answers: {error}", list(self.sentinels()));
        match error.kind() {
            kind @ (StoreErrorKind::Unreachable | StoreErrorKind::TimedOut) => {
                ServerError::Other(kind, message().into())
            }
            _ => error,
        }
    }

    /// Keeps a subscription to what a sentinel says about failovers. `hints` is notified when the
    /// primary may be another one.
    async fn subscribe(&self, sentinel: &ServerAddress, hints: &Notify) {
        let mut failures = 0;
        loop {
            let step = DialStep::new("connection");
            let subscribed = self.dialer.subscribe(sentinel, SWITCHED, &step);
            match step.within(self.parts.options.connect_timeout, subscribed).await {
                Ok(mut messages) => {
                    failures = 0;
                    // A message may have been missed before.
                    hints.notify_one();
                    // Some are about other services. They are rare, and a question costs little.
                    while messages.next().await.is_some() {
                        hints.notify_one();
                    }
                }
                Err(error) => {
                    tracing::debug!(target: "bellwether::store", %sentinel, %error, "no subscription to a sentinel");
                }
            }
            failures += 1;
            sleep(PAUSES.after(failures)).await;
        }
    }
}

impl SentinelAnswer {
    /// Reads the replies to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL MASTER`. None if the
    /// sentinel does not know the service.
    fn read(address: Value, details: Value) -> Option<Self> {
        let (host, port) = from_redis_value::<Option<(String, i64)>>(address).ok()??;
        let port = u16::try_from(port).ok().filter(|port| *port > 0 && !host.is_empty())?;
        // A list or a map of names and values.
        let fields = from_redis_value::<HashMap<String, String>>(details).unwrap_or_default();
        let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.unwrap_or_default();
        Some(Self { primary: ServerAddress::Tcp { host, port }, epoch })
    }
}

/// Push messages, which are none of a question. By RESP3 a refused login is in the words of the server.
fn ignored(_: PushInfo) -> Result<(), SendError> {
    Ok(())
}

/// Makes sure that a server that sentinels have named is a primary. In a failover they may name one
/// that is not, or not any more.
pub(super) async fn verify(
    socket: &mut MultiplexedConnection,
    address: &ServerAddress,
) -> Result<(), ServerError> {
    let role: Value = redis::cmd("ROLE").query_async(socket).await?;
    let primary = Value::BulkString(b"master".to_vec());
    match role {
        Value::Array(fields) if fields.first() == Some(&primary) => Ok(()),
        _ => {
            let message = format!("the sentinels name {address}, which is not a primary now");
            Err(ServerError::unavailable(message))
        }
    }
}

/// The primary to use after answers, and whether it is another one than before: that of the highest
/// epoch, and of equals the most frequent one.
///
/// For a while after a failover, the other sentinels do not know of it yet, and answers to earlier
/// questions may arrive late. So the answer that is in use is one of them then.
fn elect(
    known: &mut Option<(SentinelAnswer, Instant)>,
    answers: &[SentinelAnswer],
    now: Instant,
) -> Option<(ServerAddress, bool)> {
    let votes = |answer: &SentinelAnswer| {
        answers.iter().filter(|other| other.primary == answer.primary).count()
    };
    let recent = known.iter().filter(|(_, since)| now.saturating_duration_since(*since) < SPREAD);
    // Of equals, `max_by_key` takes the last one.
    let all = recent.map(|(answer, _)| answer).chain(answers.iter().rev());
    let chosen = all.max_by_key(|answer| (answer.epoch, votes(answer)))?.clone();
    let primary = chosen.primary.clone();
    if known.as_ref().is_some_and(|(known, _)| *known == chosen) {
        return Some((primary, false));
    }
    let former = known.replace((chosen, now));
    let is_another = former.is_some_and(|(former, _)| former.primary != primary);
    Some((primary, is_another))
}

/// The channel of sentinels about primaries that have changed.
const SWITCHED: &str = "+switch-master";

/// Those between attempts to subscribe to a sentinel.
const PAUSES: RetryPauses = RetryPauses::new(Duration::from_millis(100), Duration::from_secs(2));

/// How long the answers of the other sentinels are waited for when a majority has answered.
const GRACE: Duration = Duration::from_millis(20);

/// How long a failover takes to be known to all sentinels that work. They tell each other every two
/// seconds.
const SPREAD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(port: u16, epoch: u64) -> SentinelAnswer {
        let primary = ServerAddress::Tcp { host: "10.0.0.1".to_owned(), port };
        SentinelAnswer { primary, epoch }
    }

    fn elected(
        known: &mut Option<(SentinelAnswer, Instant)>,
        chosen: &SentinelAnswer,
        at: Instant,
    ) -> (String, bool) {
        let answers = std::slice::from_ref(chosen);
        let (primary, is_another) = elect(known, answers, at).expect("a primary");
        (primary.to_string(), is_another)
    }

    #[test]
    fn the_first_answer_is_no_failover_and_another_primary_is_one() {
        let mut known = None;
        let now = Instant::now();
        assert_eq!(elected(&mut known, &answer(1, 3), now), ("10.0.0.1:1".to_owned(), false));
        assert_eq!(elected(&mut known, &answer(1, 3), now), ("10.0.0.1:1".to_owned(), false));
        assert_eq!(elected(&mut known, &answer(2, 4), now), ("10.0.0.1:2".to_owned(), true));
    }

    #[test]
    fn after_a_failover_older_answers_are_not_used_for_a_while() {
        let mut known = None;
        let now = Instant::now();
        elected(&mut known, &answer(1, 3), now);
        elected(&mut known, &answer(2, 4), now);
        assert_eq!(elected(&mut known, &answer(1, 3), now), ("10.0.0.1:2".to_owned(), false));
        // The sentinels may have been replaced by others.
        let later = now + SPREAD;
        assert_eq!(elected(&mut known, &answer(1, 0), later), ("10.0.0.1:1".to_owned(), true));
    }

    fn chosen(answers: &[SentinelAnswer]) -> Option<u16> {
        elect(&mut None, answers, Instant::now()).map(|(primary, _)| match primary {
            ServerAddress::Tcp { port, .. } => port,
            ServerAddress::Unix(_) => 0,
        })
    }

    #[test]
    fn of_sentinels_with_one_epoch_the_majority_decides() {
        assert_eq!(chosen(&[answer(1, 3), answer(2, 3), answer(2, 3)]), Some(2));
        assert_eq!(chosen(&[answer(2, 3), answer(1, 3), answer(2, 3)]), Some(2));
    }

    #[test]
    fn the_sentinel_that_did_the_failover_is_believed_before_the_others_know_of_it() {
        assert_eq!(chosen(&[answer(1, 3), answer(1, 3), answer(2, 4)]), Some(2));
    }

    #[test]
    fn a_stale_sentinel_is_overruled() {
        assert_eq!(chosen(&[answer(1, 3), answer(2, 4)]), Some(2));
        assert_eq!(chosen(&[answer(2, 4), answer(1, 3)]), Some(2));
    }

    #[test]
    fn one_answer_is_enough_and_none_is_not() {
        assert_eq!(chosen(&[answer(1, 0)]), Some(1));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn replies_of_both_protocols_are_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let address = || Value::Array(vec![text("10.0.0.1"), text("7")]);
        let list = Value::Array(["ip", "x", "config-epoch", "5"].map(text).to_vec());
        let map = Value::Map(vec![(text("config-epoch"), text("5"))]);
        for details in [list, map] {
            assert_eq!(SentinelAnswer::read(address(), details), Some(answer(7, 5)));
        }
        assert_eq!(SentinelAnswer::read(address(), Value::Nil), Some(answer(7, 0)));
        assert_eq!(SentinelAnswer::read(Value::Nil, Value::Nil), None);
    }

    #[test]
    fn a_reply_without_a_host_or_a_port_names_no_primary() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let ports = [text("0"), text("65536"), Value::Int(65_537)].map(|port| ("10.0.0.1", port));
        for (host, port) in ports.into_iter().chain([("", text("6379"))]) {
            let address = Value::Array(vec![text(host), port.clone()]);
            assert_eq!(SentinelAnswer::read(address, Value::Nil), None, "{host}:{port:?}");
        }
    }

    /// A primary has the host and the port that the reply has.
    #[test]
    fn fuzzed_replies_are_none_or_name_a_primary_that_is_in_them() {
        use crate::tests::values::{changed, text};

        bellwether_testkit::fuzz::fuzz("sentinel reply", 64, 1, |choices| {
            let (host, port) =
                (choices.pick(&["10.0.0.1", "::1", "redis-1"]), choices.below(65_536));
            let epoch = choices.number();
            let address = Value::Array(vec![text(host), text(&port.to_string())]);
            let fields = ["ip", "x", "config-epoch", &epoch.to_string()].map(text).to_vec();
            let valid = SentinelAnswer::read(address.clone(), Value::Array(fields.clone()));
            let primary = ServerAddress::Tcp { host: host.to_owned(), port: port as u16 };
            let expected = (port > 0).then_some(SentinelAnswer { primary, epoch });
            assert_eq!(valid, expected);
            let (address, details) =
                (changed(choices, address), changed(choices, Value::Array(fields)));
            let said = format!("{address:?}");
            let Some(answer) = SentinelAnswer::read(address, details) else { return };
            let ServerAddress::Tcp { host, port } = answer.primary else { panic!("{said}") };
            assert!(port > 0 && !host.is_empty(), "{said}");
            assert!(said.contains(&format!("{port}")), "{said}: {port}");
            // A number is written in another way.
            let is_plain = host.bytes().all(|byte| byte.is_ascii_alphabetic());
            assert!(!is_plain || said.contains(&host), "{said}: {host}");
        });
    }
}
