//! The commands that scripts and clients use, as Redis runs them.

use super::keyspace::{StoredName, StoredValue};
use super::resp::RespValue;
use super::role::ServerRole;
use super::state::ServerState;
use super::version::ServerVersion;

/// A command that scripts may call.
#[derive(Clone, Copy)]
pub(crate) struct DataCommand {
    pub(crate) name: &'static str,
    /// The number of its words. The least number if it is negative.
    arity: i32,
    pub(crate) kind: CommandKind,
    pub(crate) run: fn(&mut ServerState, &[Vec<u8>]) -> RespValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    /// It reads the names from its first argument on: that one, or all.
    ReadOne,
    ReadAll,
    /// It writes, and is permitted if no memory is left.
    Write,
    /// It writes, and needs memory.
    Grow,
    Other,
}

static COMMANDS: [DataCommand; 14] = [
    command("get", 2, CommandKind::ReadOne, get),
    command("mget", -2, CommandKind::ReadAll, mget),
    command("set", -3, CommandKind::Grow, set),
    command("setrange", 4, CommandKind::Grow, set_range),
    command("del", -2, CommandKind::Write, delete),
    command("exists", -2, CommandKind::ReadAll, exists),
    command("pttl", 2, CommandKind::ReadOne, pttl),
    command("pexpiretime", 2, CommandKind::ReadOne, pexpiretime),
    command("pexpire", -3, CommandKind::Write, pexpire),
    command("pexpireat", -3, CommandKind::Write, pexpireat),
    command("hset", -4, CommandKind::Grow, hset),
    command("time", 1, CommandKind::Other, time),
    command("publish", 3, CommandKind::Other, publish_everywhere),
    command("ping", -1, CommandKind::Other, ping),
];

const fn command(
    name: &'static str,
    arity: i32,
    kind: CommandKind,
    run: fn(&mut ServerState, &[Vec<u8>]) -> RespValue,
) -> DataCommand {
    DataCommand { name, arity, kind, run }
}

impl CommandKind {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Grow)
    }
}

impl DataCommand {
    pub(crate) fn named(name: &[u8], version: ServerVersion) -> Option<&'static Self> {
        let is_known = |it: &&Self| it.name != "pexpiretime" || version > ServerVersion::V6;
        let mut named = COMMANDS.iter().filter(|it| it.name.as_bytes().eq_ignore_ascii_case(name));
        named.next().filter(is_known)
    }

    pub(crate) fn accepts(&self, words: usize) -> bool {
        let words = words as i32;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    pub(crate) fn call(&self, state: &mut ServerState, words: &[Vec<u8>]) -> RespValue {
        let reply = (self.run)(state, &words[1..]);
        match self.kind {
            CommandKind::ReadOne => state.were_read(&words[1..2]),
            CommandKind::ReadAll => state.were_read(&words[1..]),
            _ => {}
        }
        reply
    }
}

fn get(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    match state.find(&args[0]) {
        None => RespValue::Nil,
        Some(StoredName { value: StoredValue::Text(text), .. }) => RespValue::bytes(text),
        Some(_) => wrong_type(),
    }
}

fn mget(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let read = |name: &Vec<u8>| match state.find(name) {
        Some(StoredName { value: StoredValue::Text(text), .. }) => RespValue::bytes(text),
        _ => RespValue::Nil,
    };
    RespValue::Array(args.iter().map(read).collect())
}

fn set(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let (mut expires_at, mut only_if) = (None, None);
    let mut options = args[2..].iter();
    while let Some(option) = options.next() {
        let option = option.to_ascii_uppercase();
        match (&*option, only_if, &expires_at) {
            (b"NX", None, _) => only_if = Some(false),
            (b"XX", None, _) => only_if = Some(true),
            (b"PX" | b"EX" | b"PXAT", _, None) => {
                let Some(value) = options.next() else { return syntax() };
                expires_at = Some((option, value));
            }
            _ => return syntax(),
        }
    }
    let expires_at = match expires_at {
        None => None,
        Some((option, value)) => match expiry(state, &option, value) {
            Ok(at) => Some(at),
            Err(error) => return error,
        },
    };
    if only_if.is_some_and(|is_there| state.find(&args[0]).is_some() != is_there) {
        return RespValue::Nil;
    }
    // A value that has expired is no change of its own.
    state.find(&args[0]);
    let is_over = expires_at.is_some_and(|at| at < state.now_ms());
    let value = StoredValue::Text(args[1].clone());
    state.keyspace.insert(&args[0], StoredName { value, expires_at });
    if is_over {
        state.keyspace.remove(&args[0]);
    }
    state.changed(&args[0]);
    RespValue::ok()
}

/// When something expires, in milliseconds.
fn expiry(state: &ServerState, option: &[u8], value: &[u8]) -> Result<i64, RespValue> {
    let value = integer(value).ok_or_else(not_an_integer)?;
    let invalid = || invalid_expiry(state.version, "set");
    if value <= 0 {
        return Err(invalid());
    }
    let value = if option == b"EX" { value.checked_mul(1000).ok_or_else(invalid)? } else { value };
    if option == b"PXAT" {
        Ok(value)
    } else {
        value.checked_add(state.now_ms()).ok_or_else(invalid)
    }
}

fn set_range(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let Some(offset) = integer(&args[1]) else { return not_an_integer() };
    if offset < 0 {
        return RespValue::error("ERR offset is out of range");
    }
    let (offset, part) = (offset as usize, &args[2]);
    let length = match state.find_mut(&args[0]) {
        None if part.is_empty() => return RespValue::Int(0),
        None => {
            let value = StoredValue::Text([vec![0; offset], part.clone()].concat());
            state.keyspace.insert(&args[0], StoredName { value, expires_at: None });
            offset + part.len()
        }
        Some(StoredName { value: StoredValue::Text(text), .. }) => {
            if part.is_empty() {
                return RespValue::Int(text.len() as i64);
            }
            text.resize(text.len().max(offset + part.len()), 0);
            text[offset..offset + part.len()].copy_from_slice(part);
            text.len()
        }
        Some(_) => return wrong_type(),
    };
    state.changed(&args[0]);
    RespValue::Int(length as i64)
}

fn delete(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let mut deleted = 0;
    for name in args {
        if state.find(name).is_some() {
            state.keyspace.remove(name);
            state.changed(name);
            deleted += 1;
        }
    }
    RespValue::Int(deleted)
}

fn exists(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    RespValue::Int(args.iter().filter(|name| state.find(name).is_some()).count() as i64)
}

fn pttl(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let now = state.now_ms();
    RespValue::Int(expires_at(state, &args[0]).map_or_else(|none| none, |at| (at - now).max(0)))
}

fn pexpiretime(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    RespValue::Int(expires_at(state, &args[0]).unwrap_or_else(|none| none))
}

/// When a value expires. The error is the reply if it does not.
fn expires_at(state: &mut ServerState, name: &[u8]) -> Result<i64, i64> {
    state.find(name).ok_or(-2)?.expires_at.ok_or(-1)
}

fn pexpire(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let now = state.now_ms();
    expire(state, args, now, "pexpire")
}

fn pexpireat(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    expire(state, args, 0, "pexpireat")
}

fn expire(state: &mut ServerState, args: &[Vec<u8>], from: i64, command: &str) -> RespValue {
    let Some(time) = integer(&args[1]) else { return not_an_integer() };
    let Some(at) = time.checked_add(from) else {
        return invalid_expiry(state.version, command);
    };
    if let Some(option) = args.get(2) {
        let option = String::from_utf8_lossy(option);
        return RespValue::error(format!("ERR Unsupported option {option}"));
    }
    let now = state.now_ms();
    match state.find_mut(&args[0]) {
        None => return RespValue::Int(0),
        Some(_) if at <= now => drop(state.keyspace.remove(&args[0])),
        Some(stored) => stored.expires_at = Some(at),
    }
    state.changed(&args[0]);
    RespValue::Int(1)
}

fn invalid_expiry(version: ServerVersion, command: &str) -> RespValue {
    RespValue::error(match version {
        ServerVersion::V6 => format!("ERR invalid expire time in {command}"),
        _ => format!("ERR invalid expire time in '{command}' command"),
    })
}

/// Makes a value of another type, and is not told two fields apart.
fn hset(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let made = match state.find(&args[0]) {
        Some(StoredName { value: StoredValue::Text(_), .. }) => return wrong_type(),
        Some(_) => 0,
        None => {
            let stored = StoredName { value: StoredValue::Hash, expires_at: None };
            state.keyspace.insert(&args[0], stored);
            1
        }
    };
    state.changed(&args[0]);
    RespValue::Int(made)
}

fn time(state: &mut ServerState, _: &[Vec<u8>]) -> RespValue {
    let part = |number: u64| RespValue::bytes(number.to_string());
    RespValue::Array(vec![part(state.now / 1_000_000), part(state.now % 1_000_000)])
}

fn publish_everywhere(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    if matches!(state.role, ServerRole::Node(_)) {
        state.published.push([args[0].clone(), args[1].clone()]);
    }
    publish(state, args)
}

/// Tells the clients of this server.
pub(crate) fn publish(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let subscribers = state.channels.get(&args[0]).cloned().unwrap_or_default();
    let words = [&b"message"[..], &args[0], &args[1]];
    let message = RespValue::Push(words.map(RespValue::bytes).into());
    subscribers.iter().for_each(|client| state.send(*client, &message));
    RespValue::Int(subscribers.len() as i64)
}

fn ping(state: &mut ServerState, args: &[Vec<u8>]) -> RespValue {
    let is_subscriber = !state.client().is_resp3 && !state.client().subscriptions.is_empty();
    match args {
        [] | [_] if is_subscriber => {
            let text = args.first().map(Vec::as_slice).unwrap_or_default();
            RespValue::Array(vec![RespValue::bytes("pong"), RespValue::bytes(text)])
        }
        [] => RespValue::Status("PONG".into()),
        [text] => RespValue::bytes(text),
        _ => RespValue::error("ERR wrong number of arguments for 'ping' command"),
    }
}

/// An integer as Redis reads it: without a plus, and without zeros or spaces before it.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

fn wrong_type() -> RespValue {
    RespValue::error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

pub(crate) fn not_an_integer() -> RespValue {
    RespValue::error("ERR value is not an integer or out of range")
}

pub(crate) fn syntax() -> RespValue {
    RespValue::error("ERR syntax error")
}
