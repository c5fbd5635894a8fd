//! Requests: commands, and scripts, which are constant text and run by their hash. And the replies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::{fmt, io};

use redis::{Cmd, Script, Value};

use super::server_error::ServerError;
use super::slots::InSlot;
use bellwether::StoreError;

/// A script or a command, to be run by [`RedisClient::run`](super::RedisClient::run).
///
/// A request declares all names that its script touches. Some servers require that, and the slot
/// that the names share determines the node of a cluster.
#[derive(Clone, Default)]
#[must_use]
pub struct RedisRequest<'a> {
    command: &'static str,
    script: Option<&'a RedisScript>,
    names: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    pub(super) doing: &'static str,
    /// What it is for, for error messages. A reference, because few requests fail.
    label: Option<&'a (dyn fmt::Display + Sync)>,
    /// Whether the server's time is read, too.
    pub(super) is_timed: bool,
    is_once: bool,
    /// It does not wait for room in the [window](super::window).
    pub(super) is_urgent: bool,
    /// Its last argument is the server's time from which on its caller does not wait for it.
    lapses: bool,
    /// How many bytes its reply is expected to have.
    expected: usize,
    /// The server is to report changes of what it reads.
    is_tracked: bool,
    /// Its slot is one that the node is importing.
    pub(super) is_asking: bool,
    /// Which node of a cluster runs a command without names: the owner of this slot.
    slot: u16,
}

/// The reply to a request.
pub(super) struct Replied {
    pub(super) value: Value,
    /// Whether the request was lost with its connection and sent again. Then it may have been
    /// executed twice.
    pub(super) is_repeated: bool,
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
        Self { script: Some(script), ..Self::command("EVALSHA", names, args, doing) }
    }

    /// A request that runs a command on these names.
    pub fn command(
        command: &'static str,
        names: impl Into<Vec<Vec<u8>>>,
        args: impl Into<Vec<Vec<u8>>>,
        doing: &'static str,
    ) -> Self {
        Self { command, names: names.into(), args: args.into(), doing, ..Self::default() }
    }

    /// Sets what the request is for. Error messages show it.
    pub fn of(self, label: &'a (dyn fmt::Display + Sync)) -> Self {
        Self { label: Some(label), ..self }
    }

    /// Declares that the script must take effect once, and gives 0 if it finds nothing to do, or an
    /// array with such numbers. If the request was sent twice, 0 may come from the second execution,
    /// so it becomes an error.
    pub fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// Reads the server's time as well, in the same round trip and after the request was executed.
    /// The reply becomes an array of the reply and that of `TIME`.
    pub fn timed(self) -> Self {
        Self { is_timed: true, ..self }
    }

    /// Declares that others must not hold it up, because a lease depends on it.
    pub fn urgent(self) -> Self {
        Self { is_urgent: true, ..self }
    }

    /// Gives the script one more argument: until when the caller waits for the reply, in us by the
    /// server's clock, counted from when the request is sent. Empty while that clock is not known.
    pub fn lapsing(self) -> Self {
        Self { lapses: true, ..self }
    }

    /// Declares about how many bytes the reply has. A request of [`LARGE`](Self::LARGE) bytes or more, with
    /// its reply, is sent over a connection for those, which reports no changes.
    pub fn expecting(self, bytes: usize) -> Self {
        Self { expected: bytes, ..self }
    }

    /// Sends it over the connection that reports changes, however large it is.
    pub fn tracked(self) -> Self {
        Self { is_tracked: true, ..self }
    }

    /// How many bytes are large. A network of 1 Gbit/s takes half a millisecond for them, as long as a
    /// round trip takes; fewer hold up short replies less than that.
    pub const LARGE: usize = 64 * 1024;

    pub(super) fn is_large(&self) -> bool {
        !self.is_tracked && self.byte_len() >= Self::LARGE
    }

    /// Sends a command without names to the owner of this slot, in a cluster.
    pub fn in_slot(self, slot: u16) -> Self {
        Self { slot, ..self }
    }

    /// The same, for a node that is importing its slot.
    pub(super) fn asking(&self) -> Self {
        Self { is_asking: true, ..self.clone() }
    }

    /// Whether all names are in one slot, as a cluster requires.
    pub(super) fn is_of_one_slot(&self) -> bool {
        let mut slots = self.names.iter().map(InSlot::slot);
        let first = slots.next();
        slots.all(|slot| Some(slot) == first)
    }

    /// The error for the caller.
    pub(super) fn error(&self, error: &ServerError) -> StoreError {
        error.during(self.doing, self.label)
    }

    /// Reads a reply.
    pub(super) fn read<T>(
        &self,
        Replied { value, is_repeated }: Replied,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        if self.is_once && is_repeated && has_zero(&value) {
            let lost = io::Error::from(io::ErrorKind::ConnectionReset).into();
            return Err(self.error(&ServerError::Reported(lost)));
        }
        read(value).ok_or_else(|| self.error(&ServerError::malformed()))
    }

    /// How many keys it is about. The names of one begin with its first one.
    pub(super) fn key_count(&self) -> u32 {
        let (mut first, mut keys): (Option<&Vec<u8>>, _) = (None, 0);
        for name in &self.names {
            if first.is_none_or(|first| !name.starts_with(first)) {
                (first, keys) = (Some(name), keys + 1);
            }
        }
        keys
    }

    /// How many bytes it and its reply have, about.
    pub(super) fn byte_len(&self) -> usize {
        self.names.iter().chain(&self.args).map(Vec::len).sum::<usize>() + self.expected
    }

    /// The command to send: a script by its hash, or by its text. `lapses_at` is the server's time from
    /// which on nothing waits for it.
    pub(super) fn packed(&self, by_text: bool, lapses_at: impl FnOnce() -> Option<u64>) -> Cmd {
        let (command, script) = match self.script {
            Some(script) if by_text => ("EVAL", Some(script.text())),
            script => (self.command, script.map(RedisScript::hash)),
        };
        let words = 4 + self.names.len() + self.args.len();
        let bytes = self.names.iter().chain(&self.args).map(Vec::len).sum::<usize>();
        let bytes =
            command.len() + script.map_or(0, |script| script.len() + DIGITS) + bytes + DIGITS;
        let mut packed = Cmd::with_capacity(words, bytes);
        packed.arg(command);
        if let Some(script) = script {
            packed.arg(script).arg(self.names.len());
        }
        packed.arg(&self.names).arg(&self.args);
        if self.lapses {
            packed.arg(lapses_at().map(|at| at.to_string()).unwrap_or_default());
        }
        packed
    }
}

/// Enough for the number of names, or for a time.
const DIGITS: usize = 20;

impl fmt::Debug for RedisRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.doing, self.names)
    }
}

impl InSlot for RedisRequest<'_> {
    /// The hash slot of its names. Without names and [`in_slot`](Self::in_slot), any slot will do.
    fn slot(&self) -> u16 {
        self.names.first().map_or(self.slot, InSlot::slot)
    }
}

/// A whole number of a reply, if it is one and is not negative.
pub fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Int(whole) => u64::try_from(*whole).ok(),
        _ => None,
    }
}

/// Whether a reply is zero, or an array with a zero.
fn has_zero(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.contains(&Value::Int(0)),
        value => *value == Value::Int(0),
    }
}

/// A Lua script: a constant text, run by its hash. Clones share both.
///
/// A server that does not know the hash is sent the text.
#[derive(Clone, Debug)]
pub struct RedisScript {
    text: Arc<str>,
    hash: Arc<str>,
}

impl RedisScript {
    /// A script with this text.
    pub fn new(text: &str) -> Self {
        let hash = Script::new(text).get_hash().into();
        Self { text: text.into(), hash }
    }

    /// A script that consists of `first`, the functions that `last` uses, and `last`.
    ///
    /// Functions are those of all protocols (`read`, `fence_at`, `has_marks`, `adds_mark`, `tell` and
    /// `server_time`) and those of these libraries, each of which may use those before it. Each call of a
    /// script creates its functions, so it has no others, and `first` ends the common case before that.
    ///
    /// A function or constant of a library is a paragraph that begins with `local`.
    pub fn linked(first: &str, libraries: &[&str], last: &str) -> Self {
        let last = without_comments(last);
        let mut used: BTreeSet<_> = words(&last).collect();
        let libraries = [&[include_str!("prelude.lua")], libraries].concat();
        let libraries: Vec<_> = libraries.into_iter().map(without_comments).collect();
        let paragraphs = libraries.iter().flat_map(|library| library.split("\n\n"));
        let mut parts = vec![&*last];
        for paragraph in paragraphs.collect::<Vec<_>>().into_iter().rev() {
            let declares = paragraph.split(['=', '(']).next().unwrap_or_default();
            if words(declares).any(|word| used.contains(word)) {
                used.extend(words(paragraph));
                parts.push(paragraph);
            }
        }
        let first = without_comments(first);
        parts.push(&first);
        parts.reverse();
        Self::new(&parts.join("\n"))
    }

    /// The hash by which a server knows it.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_none = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'_';
    let words = text.as_bytes().split(is_none).map(|word| str::from_utf8(word).unwrap_or_default());
    words.filter(|word| !matches!(*word, "" | "local" | "function"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(request: &RedisRequest<'_>, by_text: bool) -> Vec<String> {
        let packed = request.packed(by_text, || None);
        let words = packed.args_iter().map(|word| match word {
            redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            _ => String::new(),
        });
        words.collect()
    }

    #[test]
    fn a_script_declares_all_its_names() {
        let script = RedisScript::new("return 1");
        let names = ["a", "b"].map(|name| name.as_bytes().to_vec());
        let request = RedisRequest::script(&script, names.clone(), [b"x".to_vec()], "testing");
        assert_eq!(words(&request, true), ["EVAL", "return 1", "2", "a", "b", "x"]);
        assert_eq!(words(&request, false), ["EVALSHA", script.hash(), "2", "a", "b", "x"]);
        let request = RedisRequest::command("MGET", names, [], "testing");
        assert_eq!(words(&request, true), ["MGET", "a", "b"]);
    }

    #[test]
    fn the_names_of_one_key_count_as_one() {
        let count = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            RedisRequest::command("MGET", names, [], "testing").key_count()
        };
        assert_eq!(count(&["{a}", "{a}:lease", "{a}:watermark", "{a}:failed"]), 1);
        assert_eq!(count(&["{a}", "{b}", "~tag:{b}"]), 3);
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn names_with_one_hash_tag_share_a_slot() {
        let script = RedisScript::new("return 1");
        let is_of_one_slot = |names: [&str; 2]| {
            let names = names.map(|name| name.as_bytes().to_vec());
            RedisRequest::script(&script, names, [], "testing").is_of_one_slot()
        };
        assert!(is_of_one_slot(["{bar}", "bw:{bar}:lease"]));
        assert!(!is_of_one_slot(["foo", "bar"]));
    }

    #[test]
    fn a_script_has_the_functions_that_it_uses_and_those_that_these_use() {
        let library = "-- one: of no use to two.\nlocal function one()\n  return limit\nend\n\n\
                       local limit, rest = 1, 2\n\n\
                       -- two\nlocal function two()\n  -- as far as the\n  return limit\nend\n";
        let script =
            RedisScript::linked("-- first\nreturn 0\n", &[library], "-- one\nreturn two()\n");
        let two = "local limit, rest = 1, 2\nlocal function two()\n  return limit\nend";
        assert_eq!(script.text(), format!("return 0\n{two}\nreturn two()"));
        let time = RedisScript::linked("", &[], "return server_time()");
        assert!(time.text().contains("redis.call('TIME')") && !time.text().contains("tell"));
    }
}
