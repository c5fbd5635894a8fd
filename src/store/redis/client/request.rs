//! Requests: scripts and commands, and the key that each is for.

use std::borrow::Cow;
use std::io;

use redis::Cmd;

use super::request_error::RequestError;
use super::script::RedisScript;
use super::slot::slot_of;
use super::value::RedisValue;
use crate::error::StoreError;
use crate::key::Key;

/// A script or a command, to be run by [`RedisClient::run`](super::RedisClient::run).
///
/// A request declares all names that its script touches. Some servers require that, and the slot
/// that the names share determines the node of a cluster. There is one exception: Redis before 7.2
/// tracks every declared name. Over a tracked connection to it, only the first
/// [`tracked`](Self::tracked) names are declared, and the others follow the arguments. So a script
/// finds the name `n` as `KEYS[n] or ARGV[..]`.
#[derive(Debug)]
pub struct RedisRequest<'a> {
    pub(super) payload: RequestPayload<'a>,
    pub(super) doing: &'static str,
    pub(super) key: Option<&'a Key>,
    pub(super) route: Route,
    is_once: bool,
}

/// The content of a request.
#[derive(Debug)]
pub(super) enum RequestPayload<'a> {
    Command(Cmd),
    Script {
        script: &'a RedisScript,
        names: Vec<Vec<u8>>,
        /// How many of the names are always declared.
        tracked: usize,
        args: Vec<Vec<u8>>,
    },
}

/// The connection to a node over which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Route {
    /// The connection with client tracking.
    Tracked,
    /// A plain connection, by its number.
    Plain(usize),
}

/// The reply to a request.
#[derive(Debug)]
pub(super) struct Replied {
    pub(super) value: RedisValue,
    /// Whether the request was lost with its connection and sent again. Then it may have been
    /// executed twice.
    pub(super) is_repeated: bool,
}

/// The form in which a script is sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptForm {
    Hash,
    Text,
}

impl<'a> RedisRequest<'a> {
    /// A request that runs a script on these names. `doing` describes it in error messages, such as
    /// "taking the lock".
    pub fn script(
        script: &'a RedisScript,
        names: impl Into<Vec<Vec<u8>>>,
        args: impl Into<Vec<Vec<u8>>>,
        doing: &'static str,
    ) -> Self {
        let names = names.into();
        let args = args.into();
        let tracked = names.len();
        let payload = RequestPayload::Script { script, names, tracked, args };
        Self { payload, doing, key: None, route: Route::Tracked, is_once: false }
    }

    /// A request that runs a command.
    pub(in super::super) fn command(command: Cmd, doing: &'static str) -> Self {
        Self {
            payload: RequestPayload::Command(command),
            doing,
            key: None,
            route: Route::Tracked,
            is_once: false,
        }
    }

    /// Sets the key that the request is for. Error messages show its kind and the start of its
    /// digest.
    #[must_use]
    pub fn of(self, key: &'a Key) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Sets how many of the names, from the first, the server may track. Default: all of them.
    #[must_use]
    pub fn tracked(mut self, count: usize) -> Self {
        if let RequestPayload::Script { tracked, .. } = &mut self.payload {
            *tracked = count;
        }
        self
    }

    /// Declares that the script must take effect once, and gives 0 if it finds nothing to do, or an
    /// array with such numbers. If the request was sent twice, 0 may come from the second execution,
    /// so it becomes an error.
    #[must_use]
    pub fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// Sets the connection.
    pub(in super::super) fn over(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// The same request with the text of its script instead of the hash.
    pub(in super::super) fn by_text(&self) -> RedisRequest<'static> {
        let command = self.packed(ScriptForm::Text, true).into_owned();
        RedisRequest::command(command, self.doing)
    }

    /// Whether all names of the script are in one slot, as a cluster requires.
    pub(super) fn is_of_one_slot(&self) -> bool {
        let RequestPayload::Script { names, .. } = &self.payload else { return true };
        let mut slots = names.iter().map(|name| slot_of(name));
        let first = slots.next();
        slots.all(|slot| Some(slot) == first)
    }

    /// The error for the caller.
    pub(super) fn error(&self, error: &RequestError) -> StoreError {
        error.during(self.doing, self.key)
    }

    /// Reads a reply.
    pub(super) fn read<T>(
        &self,
        Replied { value, is_repeated }: Replied,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, StoreError> {
        if self.is_once && is_repeated && value.has_zero() {
            let lost = io::Error::from(io::ErrorKind::ConnectionReset).into();
            return Err(self.error(&RequestError::Reported(lost)));
        }
        read(value).ok_or_else(|| self.error(&RequestError::Malformed))
    }

    /// The command to send, with all names declared or only the tracked ones.
    pub(super) fn packed(&self, form: ScriptForm, declares_all: bool) -> Cow<'_, Cmd> {
        let (script, names, tracked, args) = match &self.payload {
            RequestPayload::Command(command) => return Cow::Borrowed(command),
            RequestPayload::Script { script, names, tracked, args } => {
                (script, names, *tracked, args)
            }
        };
        let (command, text) = match form {
            ScriptForm::Hash => ("EVALSHA", script.hash()),
            ScriptForm::Text => ("EVAL", script.text()),
        };
        let declared = if declares_all { names.len() } else { tracked.min(names.len()) };
        let (declared, others) = names.split_at(declared);
        let mut call = redis::cmd(command);
        call.arg(text).arg(declared.len()).arg(declared).arg(args).arg(others);
        Cow::Owned(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(request: &RedisRequest<'_>, declares_all: bool) -> Vec<String> {
        let packed = request.packed(ScriptForm::Text, declares_all);
        let words = packed.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            _ => String::new(),
        });
        words.collect()
    }

    #[test]
    fn names_that_are_not_to_be_tracked_follow_the_arguments_of_a_server_that_tracks_all_keys() {
        let script = RedisScript::new(&["return 1"]);
        let names = ["a", "b", "c"].map(|name| name.as_bytes().to_vec());
        let request = RedisRequest::script(&script, names, [b"x".to_vec()], "testing").tracked(1);
        assert_eq!(words(&request, true), ["EVAL", "return 1", "3", "a", "b", "c", "x"]);
        assert_eq!(words(&request, false), ["EVAL", "return 1", "1", "a", "x", "b", "c"]);
    }

    #[test]
    fn names_with_one_hash_tag_share_a_slot() {
        let script = RedisScript::new(&["return 1"]);
        let is_of_one_slot = |names: [&str; 2]| {
            let names = names.map(|name| name.as_bytes().to_vec());
            RedisRequest::script(&script, names, [], "testing").is_of_one_slot()
        };
        assert!(is_of_one_slot(["{bar}", "bw:{bar}:lease"]));
        assert!(!is_of_one_slot(["foo", "bar"]));
    }
}
