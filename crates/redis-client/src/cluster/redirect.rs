//! Redirections: what a client of a cluster does about an error.

use std::str;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::address::ServerAddress;
use crate::node::RedisNode;
use crate::retry_pauses::RetryPauses;
use crate::server_error::{CLUSTER_DOWN, MOVING, ServerError};
use crate::slots::SLOTS;
use bellwether::store::StoreErrorKind;

/// What to do about an error of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot has another owner (`MOVED`): ask that at once.
    Follow { slot: u16, to: ServerAddress },
    /// The slot is moving, and the name may have moved already (`ASK`): ask there once, and ask the
    /// owner the next time.
    AskOnce { slot: u16, to: ServerAddress },
    /// The slot is moving, and some names have moved (`TRYAGAIN`): repeat the request after a pause.
    Repeat,
    /// The cluster takes no requests (`CLUSTERDOWN`): repeat it after a pause, by a new map.
    AwaitCluster,
    /// The node does not serve its slots: ask the owner by a new map.
    AskAnother,
    /// Another request would fail in the same way.
    Fail,
}

/// The address of a server, as the one at `asked` gives it. A server that does not know its own host
/// gives none, or `?`.
pub(super) fn address_of(host: &str, port: u16, asked: &ServerAddress) -> Option<ServerAddress> {
    let host = match asked {
        _ if port == 0 => return None,
        _ if !host.is_empty() && host != "?" => host.to_owned(),
        ServerAddress::Tcp { host, .. } => host.clone(),
        ServerAddress::Unix(_) => return Some(asked.clone()),
    };
    Some(ServerAddress::Tcp { host, port })
}

/// What to do about an error of the node of a cluster at `asked`.
pub(super) fn redirection(error: &ServerError, asked: &ServerAddress) -> Redirection {
    let reported = match error {
        ServerError::Other(StoreErrorKind::Malformed, _) => return Redirection::Fail,
        ServerError::Other(..) | ServerError::Unconnected(_) => return Redirection::AskAnother,
        ServerError::Reported(reported) | ServerError::Redirected(reported) => reported,
    };
    let target = || {
        let (address, slot) =
            reported.redirect_node().filter(|(_, slot)| usize::from(*slot) < SLOTS)?;
        // An IPv6 address has no brackets.
        let (host, port) = address.rsplit_once(':')?;
        Some((slot, address_of(host, port.parse().ok()?, asked)?))
    };
    match (reported.code(), target()) {
        (Some("MOVED"), Some((slot, to))) => Redirection::Follow { slot, to },
        (Some("ASK"), Some((slot, to))) => Redirection::AskOnce { slot, to },
        (Some("READONLY" | "MASTERDOWN" | "LOADING"), _) => Redirection::AskAnother,
        (Some(_), _) => match error.advice() {
            MOVING => Redirection::Repeat,
            CLUSTER_DOWN => Redirection::AwaitCluster,
            _ => Redirection::Fail,
        },
        (None, _) if error.is_lost() => Redirection::AskAnother,
        (None, _) => Redirection::Fail,
    }
}

/// How far a request has come.
pub(super) struct Journey {
    pub(super) deadline: Instant,
    /// Until when it is repeated after a pause. The rest is for the reply, without which it is not
    /// known whether it was executed.
    repeat_until: Instant,
    /// The node that it goes to next, and whether that is importing its slot (`ASKING`). None is the
    /// owner of its slot.
    pub(super) next: Option<(Arc<RedisNode>, bool)>,
    /// Whether a node may have executed it without a reply.
    pub(super) may_be_repeated: bool,
    /// How many redirections were followed.
    redirections: u32,
    /// How many pauses there were.
    pauses: u32,
}

impl Journey {
    /// A request that may take as long as `timeout`.
    pub(super) fn new(deadline: Instant, timeout: Duration) -> Self {
        let (redirections, pauses) = (0, 0);
        let repeat_until = deadline - timeout / 4;
        Self { deadline, repeat_until, next: None, may_be_repeated: false, redirections, pauses }
    }

    /// Follows a redirection. The first ones are followed at once. While nodes disagree, they send
    /// requests back and forth, so there are pauses between later ones. False if there were too
    /// many.
    pub(super) async fn follow(&mut self, node: Arc<RedisNode>, asks: bool) -> bool {
        self.redirections += 1;
        self.next = Some((node, asks));
        self.redirections <= AT_ONCE || self.redirections <= MOST && self.pause().await
    }

    /// Waits before the request is repeated, because its slot is moving. Until the slot has moved, it
    /// may be sent to the other node and back any number of times. False if there is no time left
    /// for that.
    pub(super) async fn await_move(&mut self) -> bool {
        self.redirections = 0;
        self.pause().await
    }

    /// Waits before the request is repeated. False if there is no time left for that.
    pub(super) async fn pause(&mut self) -> bool {
        self.pauses += 1;
        let until = Instant::now() + PAUSES.after(self.pauses);
        if until >= self.repeat_until {
            return false;
        }
        sleep_until(until).await;
        true
    }

    /// Notes an error after which the node may still have executed the request.
    pub(super) fn note_lost(&mut self, error: &ServerError) {
        // An error without a code is no reply.
        self.may_be_repeated |= matches!(error, ServerError::Other(StoreErrorKind::TimedOut, _))
            || matches!(error, ServerError::Reported(error) if error.code().is_none());
    }
}

/// A slot of small values moves within milliseconds.
const PAUSES: RetryPauses = RetryPauses::new(Duration::from_millis(2), Duration::from_millis(50));

/// How many redirections are followed without a pause.
const AT_ONCE: u32 = 4;
/// How many redirections are followed.
const MOST: u32 = 16;

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use redis::{Value, parse_redis_value};

    use super::*;
    use crate::tests::servers::ERRORS;
    use bellwether_testkit::fuzz::fuzz;

    /// The error that the client makes of an error reply.
    fn sent(reply: &str) -> ServerError {
        let reply = parse_redis_value(format!("-{reply}\r\n").as_bytes());
        let error = reply.and_then(Value::extract_error).unwrap_err();
        ServerError::Reported(error).in_cluster()
    }

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: host.to_owned(), port }
    }

    fn redirected(error: &ServerError) -> Redirection {
        redirection(error, &tcp("asked", 6379))
    }

    #[test]
    fn every_error_has_its_next_step() {
        let follow = |slot, to| Redirection::Follow { slot, to };
        let ask_once = |slot, to| Redirection::AskOnce { slot, to };
        let steps = [
            ("MOVED 3999 127.0.0.1:6381", follow(3999, tcp("127.0.0.1", 6381))),
            ("MOVED 1 redis-2.internal:6379", follow(1, tcp("redis-2.internal", 6379))),
            ("MOVED 1 2001:db8::7:6379", follow(1, tcp("2001:db8::7", 6379))),
            ("MOVED 1 :6380", follow(1, tcp("asked", 6380))),
            ("MOVED 1 ?:6380", follow(1, tcp("asked", 6380))),
            ("MOVED 1", Redirection::Fail),
            ("MOVED 1 host:port", Redirection::Fail),
            ("ASK 16383 10.0.0.1:6379", ask_once(16_383, tcp("10.0.0.1", 6379))),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Redirection::Repeat),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 1f",
                Redirection::Repeat,
            ),
            ("CLUSTERDOWN The cluster is down", Redirection::AwaitCluster),
            ("CLUSTERDOWN Hash slot not served", Redirection::AwaitCluster),
            (
                "ERR Script attempted to execute a write command while the cluster is down and \
                 readonly script: 0f3a, on @user_script:1.",
                Redirection::AwaitCluster,
            ),
            ("READONLY You can't write against a read only replica.", Redirection::AskAnother),
            ("MASTERDOWN Link with MASTER is down", Redirection::AskAnother),
            ("LOADING Redis is loading the dataset in memory", Redirection::AskAnother),
            ("CROSSSLOT Keys in request don't hash to the same slot", Redirection::Fail),
            ("OOM command not allowed when used memory > 'maxmemory'.", Redirection::Fail),
            ("NOPERM this user has no permissions to run the 'mget' command", Redirection::Fail),
            ("ERR unknown command", Redirection::Fail),
        ];
        for (reply, step) in steps {
            assert_eq!(redirected(&sent(reply)), step, "{reply}");
        }
    }

    /// The table of slots would take it for another one.
    #[test]
    fn a_slot_that_no_cluster_has_is_not_followed() {
        for reply in ["MOVED 16384 10.0.0.1:6379", "ASK 65535 10.0.0.1:6379"] {
            assert_eq!(redirected(&sent(reply)), Redirection::Fail, "{reply}");
        }
    }

    #[test]
    fn a_node_without_a_reply_may_have_a_successor() {
        let lost = || io::Error::from(io::ErrorKind::ConnectionReset);
        for error in [
            ServerError::late(Duration::from_millis(250)),
            ServerError::Reported(lost().into()),
            ServerError::Unconnected(Arc::new(lost().into())),
        ] {
            assert_eq!(redirected(&error), Redirection::AskAnother, "{error}");
        }
        assert_eq!(redirected(&ServerError::malformed()), Redirection::Fail);
    }

    #[test]
    fn fuzzed_errors_lead_only_to_the_address_and_the_slot_that_they_name() {
        let asked = tcp("asked", 6379);
        fuzz("MOVED and ASK", 64, 1, |choices| {
            let (error, other) = (choices.pick(&ERRORS), choices.pick(&ERRORS));
            let error = choices.mutated(error.as_bytes(), other.as_bytes());
            let reply = parse_redis_value(&[b"-", &*error, b"\r\n"].concat());
            let Err(reported) = reply.and_then(Value::extract_error) else { return };
            let step = redirection(&ServerError::Reported(reported).in_cluster(), &asked);
            let (Redirection::Follow { slot, to } | Redirection::AskOnce { slot, to }) = step
            else {
                return;
            };
            let error = String::from_utf8_lossy(&error);
            let ServerAddress::Tcp { host, port } = to else { panic!("{error}: a socket") };
            assert!(slot < 16_384 && port > 0, "{error}: {slot} {port}");
            assert!(host == "asked" || error.contains(&host), "{error}: {host}");
            for number in [slot, port] {
                assert!(error.contains(&number.to_string()), "{error}: {number}");
            }
        });
    }
}
