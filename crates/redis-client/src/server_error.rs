//! Errors of servers: why there is no connection or no usable reply, and their classification.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use redis::{ErrorKind, RedisError};

use bellwether::StoreError;
use bellwether::store::StoreErrorKind;

/// Why there is no connection, or no usable reply.
#[derive(Clone, Debug)]
pub(super) enum ServerError {
    /// The client or the server reports an error.
    Reported(RedisError),
    /// A node of a cluster sends the request to another one.
    Redirected(RedisError),
    /// There is no connection, and the request was not sent.
    Unconnected(Arc<Self>),
    /// What else is in the way, and the kind of that.
    Other(StoreErrorKind, Arc<str>),
}

/// The classification of an error reply.
pub(super) struct Classification {
    /// The first word of the reply, or some words of it. They can be anywhere in the text, because
    /// older servers put the error of a command inside a script there.
    said: &'static str,
    pub(super) kind: StoreErrorKind,
    /// Added to the message: what an operator can do about it.
    pub(super) advice: &'static str,
}

impl ServerError {
    /// What is needed for a connection does not answer, or not yet.
    pub(super) fn unavailable(message: impl Into<Arc<str>>) -> Self {
        Self::Other(StoreErrorKind::Unreachable, message.into())
    }

    /// The options or the files that they name do not fit the server.
    pub(super) fn misconfigured(message: impl Into<Arc<str>>) -> Self {
        Self::Other(StoreErrorKind::Misconfigured, message.into())
    }

    /// The reply does not fit the request.
    pub(super) fn malformed() -> Self {
        Self::Other(StoreErrorKind::Malformed, "the reply makes no sense".into())
    }

    /// There was no reply in time.
    pub(super) fn late(timeout: Duration) -> Self {
        Self::Other(StoreErrorKind::TimedOut, format!("no answer within {timeout:?}").into())
    }

    /// The error for the caller, with the operation and what it was for.
    pub(super) fn during(&self, what: &str, of: Option<&(dyn fmt::Display + Sync)>) -> StoreError {
        let of = of.map(|of| format!(" of `{of}`")).unwrap_or_default();
        let advice = self.advice();
        let separator = if advice.is_empty() { "" } else { ": " };
        let message = format!("redis, {what}{of}: {self}{separator}{advice}");
        let error = StoreError::new(self.kind(), message);
        let error = if advice == MOVING { error.of_move() } else { error };
        match self.reported() {
            Some(source) => error.with_source(source.clone()),
            None => error,
        }
    }

    /// The error as one of a node of a cluster, where redirections are no errors yet.
    pub(super) fn in_cluster(self) -> Self {
        match self {
            Self::Reported(error) if error.redirect_node().is_some() => Self::Redirected(error),
            other => other,
        }
    }

    /// Whether a server that refused RESP3 may accept RESP2. It refuses wrong credentials by both, and one
    /// that is not ready says nothing of the protocol. Of a server that has `spoken` RESP3 before, only the
    /// plain refusal of the protocol counts: a proxy may give any error for a moment.
    pub(super) fn is_about_the_protocol(&self, spoken: bool) -> bool {
        let Self::Reported(error) = self else { return false };
        let refuses = || matches!(error.code(), Some("NOPROTO")) || self.says("unknown command");
        !error.is_io_error()
            && !self.is_about_credentials()
            && self.kind() != StoreErrorKind::NotReady
            && (!spoken || refuses())
    }

    fn says(&self, said: &str) -> bool {
        self.classification().is_some_and(|class| class.said == said)
    }

    /// Whether the server refused the credentials, or misses them.
    pub(super) fn is_about_credentials(&self) -> bool {
        let Self::Reported(error) = self else { return false };
        error.kind() == ErrorKind::AuthenticationFailed
            || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
    }

    /// Whether the server ends a connection after it.
    pub(super) fn ends_connection(&self) -> bool {
        self.says(MAX_CLIENTS) || self.says(DENIED)
    }

    /// Whether it means that the connection is lost.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Reported(error) if error.is_unrecoverable_error()
            || error.is_io_error() || error.is_connection_dropped())
    }

    /// Whether the server has become a replica. Only a write detects that.
    pub(super) fn is_of_replica(&self) -> bool {
        self.classification().is_some_and(Classification::is_of_replica)
    }

    /// Whether it means that the server is down, slow or out of reach. A refusal of one request does
    /// not, and neither does what a node of a cluster says about slots.
    pub(super) fn is_outage(&self) -> bool {
        use StoreErrorKind::{NotReady, TimedOut, Unreachable};
        match self {
            Self::Unconnected(_) => true,
            Self::Redirected(_) => false,
            _ if matches!(self.advice(), MOVING | CLUSTER_DOWN) => false,
            _ => matches!(self.kind(), NotReady | TimedOut | Unreachable),
        }
    }

    pub(super) fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Other(kind, _) => *kind,
            Self::Redirected(_) => StoreErrorKind::NotReady,
            Self::Unconnected(error) => error.kind(),
            Self::Reported(error) => match classify(error) {
                Some(class) => class.kind,
                None => kind_of(error),
            },
        }
    }

    pub(super) fn advice(&self) -> &'static str {
        self.classification().map_or("", |class| class.advice)
    }

    fn classification(&self) -> Option<&'static Classification> {
        match self {
            Self::Redirected(_) => None,
            other => classify(other.reported()?),
        }
    }

    /// What the client or the server reports.
    fn reported(&self) -> Option<&RedisError> {
        match self {
            Self::Reported(error) | Self::Redirected(error) => Some(error),
            Self::Unconnected(error) => error.reported(),
            Self::Other(..) => None,
        }
    }
}

impl From<RedisError> for ServerError {
    fn from(error: RedisError) -> Self {
        Self::Reported(error)
    }
}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        Self::Reported(error.into())
    }
}

impl Classification {
    pub(super) fn is_of_replica(&self) -> bool {
        self.said == READONLY
    }
}

/// An error reply is shown in the words of the server.
impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(error) => match (error.code(), error.detail()) {
                (Some(code), Some(detail)) => write!(f, "{code} {detail}"),
                (Some(code), None) => f.write_str(code),
                (None, _) => fmt::Display::fmt(error, f),
            },
            Self::Redirected(error) => write!(f, "{error}: {DISAGREE}"),
            Self::Unconnected(error) => write!(f, "no connection: {error}"),
            Self::Other(_, message) => f.write_str(message),
        }
    }
}

/// The kind of an error without a classification.
fn kind_of(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => StoreErrorKind::Refused,
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => {
            StoreErrorKind::Misconfigured
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreErrorKind::Malformed,
        _ if error.is_timeout() => StoreErrorKind::TimedOut,
        _ => StoreErrorKind::Unreachable,
    }
}

fn classify(error: &RedisError) -> Option<&'static Classification> {
    let code = error.code()?;
    let by_code = CLASSIFICATIONS.iter().find(|class| class.said == code);
    // Older servers put the error of a command inside a script in the text.
    by_code.or_else(|| classify_text(error.detail()?))
}

pub(super) fn classify_text(text: &str) -> Option<&'static Classification> {
    CLASSIFICATIONS.iter().find(|class| {
        let begins = |at: usize| !text[..at].ends_with(|before: char| before.is_alphanumeric());
        let ends = |at: usize| text[at..].starts_with(|after: char| !after.is_alphanumeric());
        let mut places = text.match_indices(class.said);
        places.any(|(at, said)| {
            begins(at) && (at + said.len() == text.len() || ends(at + said.len()))
        })
    })
}

const READONLY: &str = "READONLY";

const MAX_CLIENTS: &str = "max number of clients";

const DENIED: &str = "DENIED";

/// The error replies with a classification. All others are [`StoreErrorKind::Refused`].
///
/// `NOSCRIPT` is not among them, because the client then sends the text of the script.
const CLASSIFICATIONS: &[Classification] = &[
    not_ready("LOADING", "it is loading its data; ask again, or use `connect_lazily`"),
    not_ready("BUSY", "a long script keeps it from answering"),
    not_ready("MASTERDOWN", "it is a replica that has lost its primary"),
    not_ready("TRYAGAIN", MOVING),
    // A script has used a name that has moved already.
    not_ready("non local key", MOVING),
    not_ready("CLUSTERDOWN", CLUSTER_DOWN),
    not_ready("the cluster is down", CLUSTER_DOWN),
    not_ready(MAX_CLIENTS, "raise its `maxclients`, or close some of the others"),
    refused("OOM", "it is full: raise its `maxmemory`, or have it evict (`maxmemory-policy`)"),
    refused("MISCONF", "it cannot save to its disk, and takes no writes until it can"),
    refused("NOREPLICAS", "it takes no writes while it has too few replicas"),
    refused(READONLY, "it is a replica: the address must lead to the primary"),
    misconfigured(
        DENIED,
        "it is in protected mode: set a password (`requirepass`), or the address to `bind`",
    ),
    misconfigured("NOAUTH", "give a user and a password in the address"),
    misconfigured("WRONGPASS", "the user or the password in the address is wrong, or disabled"),
    misconfigured("NOPERM", RIGHTS),
    // Of a `SELECT`, the client gives the text without the code.
    misconfigured("has no permissions to run", RIGHTS),
    misconfigured("user executing the script can't", RIGHTS),
    misconfigured("ACL failure in script", RIGHTS),
    misconfigured("unknown command", RENAMED),
    // Of a script.
    misconfigured("command called from", RENAMED),
    misconfigured("MOVED", CLUSTER),
    misconfigured("ASK", CLUSTER),
    misconfigured("CROSSSLOT", CLUSTER),
    misconfigured("cluster support disabled", "it is a single server: use `redis://`"),
];

const CLUSTER: &str = "it is a node of a cluster: use `redis-cluster://`";

pub(super) const MOVING: &str = "its slot is moving to another node of a cluster";

const DISAGREE: &str = "the nodes of the cluster disagree about the owner of its slot";

pub(super) const CLUSTER_DOWN: &str = "it is a node of a cluster that takes no requests: some slots have no owner, or most nodes do \
     not reach each other";

const RENAMED: &str = "it must be Redis 6.2 or later, or Valkey, with no command renamed";

pub(super) const RIGHTS: &str = "the user must be allowed what the documentation of `RedisStore` or of the lock lists, \
     `~bw:*` among it";

const fn not_ready(said: &'static str, advice: &'static str) -> Classification {
    Classification { said, kind: StoreErrorKind::NotReady, advice }
}

const fn refused(said: &'static str, advice: &'static str) -> Classification {
    Classification { said, kind: StoreErrorKind::Refused, advice }
}

const fn misconfigured(said: &'static str, advice: &'static str) -> Classification {
    Classification { said, kind: StoreErrorKind::Misconfigured, advice }
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    /// The error that the client makes of an error reply.
    fn sent(reply: &str) -> ServerError {
        let reply = parse_redis_value(format!("-{reply}\r\n").as_bytes()).and_then(|value| {
            let Value::ServerError(error) = value else { panic!("{value:?}") };
            Err::<(), RedisError>(error.into())
        });
        ServerError::Reported(reply.unwrap_err())
    }

    #[test]
    fn every_error_reply_has_its_kind() {
        use StoreErrorKind::{Misconfigured, NotReady, Refused};
        let replies = [
            ("LOADING Redis is loading the dataset in memory", NotReady),
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", NotReady),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'.", NotReady),
            ("TRYAGAIN Multiple keys request during rehashing of slot", NotReady),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 1f",
                NotReady,
            ),
            ("CLUSTERDOWN Hash slot not served", NotReady),
            ("ERR Script attempted to execute a write command while the cluster is down", NotReady),
            ("ERR max number of clients reached", NotReady),
            ("OOM command not allowed when used memory > 'maxmemory'.", Refused),
            ("MISCONF Redis is configured to save RDB snapshots, but", Refused),
            ("NOREPLICAS Not enough good replicas to write.", Refused),
            ("READONLY You can't write against a read only replica.", Refused),
            ("NOAUTH Authentication required.", Misconfigured),
            ("WRONGPASS invalid username-password pair or user is disabled.", Misconfigured),
            ("NOPERM this user has no permissions to run the 'mget' command", Misconfigured),
            ("ERR this user has no permissions to run the 'select' command", Misconfigured),
            ("MOVED 3999 127.0.0.1:6381", Misconfigured),
            ("ASK 3999 127.0.0.1:6381", Misconfigured),
            ("CROSSSLOT Keys in request don't hash to the same slot", Misconfigured),
            ("ERR unknown command 'EVALSHA', with args beginning with: ", Misconfigured),
            ("ERR something else", Refused),
            ("WHATEVER it says", Refused),
        ];
        for (reply, kind) in replies {
            assert_eq!(sent(reply).kind(), kind, "{reply}");
        }
    }

    #[test]
    fn what_a_script_met_is_read_from_the_text_of_its_error() {
        use StoreErrorKind::{Misconfigured, Refused};
        let replies = [
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:9.",
                Refused,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1f",
                Misconfigured,
            ),
            (
                "ERR ACL failure in script: User bw has no permissions to run the 'set' command",
                Misconfigured,
            ),
            (
                "ERR Error running script (call to f_1f): @user_script:9: @user_script: 9: -READONLY You can't",
                Refused,
            ),
            (
                "ERR Unknown Redis command called from script script: 1f, on @user_script:7.",
                Misconfigured,
            ),
        ];
        for (reply, kind) in replies {
            assert_eq!(sent(reply).kind(), kind, "{reply}");
        }
        assert!(sent(replies[3].0).is_of_replica());
        assert!(!sent(replies[0].0).is_of_replica());
    }

    #[test]
    fn an_error_reply_is_shown_in_the_words_of_the_server() {
        for reply in [
            "NOPERM this user has no permissions to run the 'mget' command",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "READONLY You can't write against a read only replica.",
            "ERR something else",
        ] {
            assert_eq!(sent(reply).to_string(), reply);
        }
    }

    #[test]
    fn a_word_within_a_word_means_nothing() {
        for reply in ["ERR OOMPH", "ERR TASK 1", "BUSYGROUP exists", "BUSYKEY Target key name"] {
            assert_eq!(sent(reply).kind(), StoreErrorKind::Refused, "{reply}");
            assert_eq!(sent(reply).advice(), "", "{reply}");
        }
    }

    #[test]
    fn an_error_says_what_was_done_what_came_of_it_and_what_to_do() {
        let error = sent("OOM command not allowed").during("reading an entry", Some(&"item#4f"));
        let said = error.to_string();
        assert!(
            said.contains("reading an entry of `item") && said.contains("maxmemory-policy"),
            "{said}"
        );
    }
}
