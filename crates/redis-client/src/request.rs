//! Requests: scripts and commands.

use std::{fmt, io};

use redis::{Cmd, Value};

use super::request_error::RequestError;
use super::script::RedisScript;
use super::slot::InSlot;
use super::value::RedisValue;
use bellwether::StoreError;

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
    /// What it is for, for error messages.
    label: Option<Label<'a>>,
    pub(super) route: Route,
    /// The form in which a script is sent first.
    pub(super) form: ScriptForm,
    /// Whether the server's time is read, too.
    pub(super) is_timed: bool,
    is_once: bool,
    /// The hash slot of its names, if it is known.
    slot: Option<u16>,
}

/// The content of a request.
#[derive(Debug)]
pub(super) enum RequestPayload<'a> {
    /// A command on these names, or on none.
    Command { command: &'static str, names: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
    Script {
        script: &'a RedisScript,
        names: Vec<Vec<u8>>,
        /// How many of the names are always declared.
        tracked: usize,
        args: Vec<Vec<u8>>,
    },
}

/// What a request is for. A reference, because few requests fail.
struct Label<'a>(&'a (dyn fmt::Display + Sync));

impl fmt::Debug for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

/// The connection to a node over which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The first connection. With client tracking, it is the tracked one.
    First,
    /// A connection for lookups only, by its number.
    Lookups(usize),
}

/// What is sent over a connection at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing<'a> {
    /// A request. The reply is its own.
    One(&'a RedisRequest<'a>),
    /// A request for a slot that the node is importing (`ASKING`).
    Asking(&'a RedisRequest<'a>),
    /// Several requests as a pipeline. The reply is an array of theirs, which may be errors.
    Batch(&'a [&'a RedisRequest<'a>]),
}

/// The reply to what was sent.
#[derive(Debug)]
pub(super) struct Replied {
    pub(super) value: Value,
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
    fn new(payload: RequestPayload<'a>, doing: &'static str) -> Self {
        let route = Route::First;
        let form = ScriptForm::Hash;
        Self {
            payload,
            doing,
            label: None,
            route,
            form,
            is_timed: false,
            is_once: false,
            slot: None,
        }
    }

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
        Self::new(payload, doing)
    }

    /// A request that runs a command on these names.
    pub fn command(
        command: &'static str,
        names: impl Into<Vec<Vec<u8>>>,
        doing: &'static str,
    ) -> Self {
        let payload = RequestPayload::Command { command, names: names.into(), args: Vec::new() };
        Self::new(payload, doing)
    }

    /// Adds arguments.
    pub fn with_args(mut self, more: impl IntoIterator<Item = Vec<u8>>) -> Self {
        match &mut self.payload {
            RequestPayload::Command { args, .. } | RequestPayload::Script { args, .. } => {
                args.extend(more);
            }
        }
        self
    }

    /// Sets what the request is for. Error messages show it.
    #[must_use]
    pub fn of(self, label: &'a (dyn fmt::Display + Sync)) -> Self {
        Self { label: Some(Label(label)), ..self }
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

    /// Reads the server's time as well, in the same round trip and after the request was executed.
    /// The reply becomes an array of the reply and that of `TIME`.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { is_timed: true, ..self }
    }

    /// Sets the hash slot of its names, which is found out otherwise.
    pub fn in_slot(self, slot: u16) -> Self {
        Self { slot: Some(slot), ..self }
    }

    /// Sets the connection.
    pub fn over(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// The same request with the text of its script instead of the hash.
    #[must_use]
    pub fn by_text(self) -> Self {
        Self { form: ScriptForm::Text, ..self }
    }

    /// Whether all names are in one slot, as a cluster requires.
    pub(super) fn is_of_one_slot(&self) -> bool {
        let mut slots = self.names().iter().map(InSlot::slot);
        let first = slots.next();
        slots.all(|slot| Some(slot) == first)
    }

    fn names(&self) -> &[Vec<u8>] {
        match &self.payload {
            RequestPayload::Command { names, .. } | RequestPayload::Script { names, .. } => names,
        }
    }

    /// The error for the caller.
    pub(super) fn error(&self, error: &RequestError) -> StoreError {
        error.during(self.doing, self.label.as_ref().map(|label| label.0))
    }

    /// Reads a reply.
    pub(super) fn read<T>(
        &self,
        Replied { value, is_repeated }: Replied,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, StoreError> {
        let value = RedisValue::from(value);
        if self.is_once && is_repeated && value.has_zero() {
            let lost = io::Error::from(io::ErrorKind::ConnectionReset).into();
            return Err(self.error(&RequestError::Reported(lost)));
        }
        read(value).ok_or_else(|| self.error(&RequestError::Malformed))
    }

    /// The command to send, with all names declared or only the tracked ones.
    pub(super) fn packed(&self, form: ScriptForm, declares_all: bool) -> Cmd {
        let (script, names, tracked, args) = match &self.payload {
            RequestPayload::Command { command, names, args } => {
                let words = 1 + names.len() + args.len();
                let bytes = names.iter().chain(args).map(Vec::len).sum::<usize>();
                let mut call = Cmd::with_capacity(words, command.len() + bytes);
                call.arg(command).arg(names).arg(args);
                return call;
            }
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
        let words = 3 + names.len() + args.len();
        let bytes = names.iter().chain(args).map(Vec::len).sum::<usize>();
        let bytes = command.len() + text.len() + DIGITS + bytes;
        let mut call = Cmd::with_capacity(words, bytes);
        call.arg(command).arg(text).arg(declared.len()).arg(declared).arg(args).arg(others);
        call
    }
}

/// Enough for the number of names.
const DIGITS: usize = 8;

impl InSlot for RedisRequest<'_> {
    /// The hash slot of its names. Without names, any slot will do.
    fn slot(&self) -> u16 {
        let of_names = || self.names().first().map_or(0, InSlot::slot);
        self.slot.unwrap_or_else(of_names)
    }
}

impl Outgoing<'_> {
    /// How many requests it is.
    pub(super) fn requests(&self) -> usize {
        match self {
            Self::One(_) | Self::Asking(_) => 1,
            Self::Batch(requests) => requests.len(),
        }
    }

    /// The error for the caller. That of a batch names no key.
    pub(super) fn error(&self, error: &RequestError) -> StoreError {
        match self {
            Self::One(request) | Self::Asking(request) => request.error(error),
            Self::Batch(requests) => {
                let doing = requests.first().map_or("", |request| request.doing);
                error.during(doing, None)
            }
        }
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
