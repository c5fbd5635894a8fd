//! Scripts: the Lua files of the repository, run by the interpreter that Redis has.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};
use sha1_smol::Sha1;

use super::commands::{CommandKind, DataCommand};
use super::resp::RespValue;
use super::shown::script_name;
use super::state::ServerState;
use super::version::ServerVersion;
use crate::locked;

/// Replacements in the texts of scripts: mutants of them.
pub type Mutations = Arc<[(&'static str, &'static str)]>;

/// The scripts that a server knows.
#[derive(Debug)]
pub(super) struct Scripts {
    lua: Lua,
    guard: Function,
    known: HashMap<String, Function>,
    names: HashMap<String, &'static str>,
    mutations: Mutations,
}

impl Scripts {
    pub(super) fn new(state: &Arc<Mutex<ServerState>>, mutations: Mutations) -> mlua::Result<Self> {
        let lua = Lua::new();
        // A run is short: what its scripts leave is some megabytes.
        lua.gc_stop();
        let guard = lua.load(GUARD).set_name("=guard").call(lua.create_function(failed)?)?;
        let redis = lua.create_table()?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            let state = Arc::clone(state);
            let call = move |lua: &Lua, words| call(lua, &state, &words, raises);
            redis.set(name, lua.create_function(call)?)?;
        }
        lua.globals().set("redis", redis)?;
        let structs = lua.create_table()?;
        structs.set("pack", lua.create_function(pack)?)?;
        structs.set("unpack", lua.create_function(unpack)?)?;
        lua.globals().set("struct", structs)?;
        Ok(Self { lua, guard, known: HashMap::new(), names: HashMap::new(), mutations })
    }

    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// The name of a script, for a person.
    pub(super) fn name(&self, hash: &[u8]) -> &'static str {
        self.names.get(&*String::from_utf8_lossy(hash)).copied().unwrap_or("an unknown script")
    }

    pub(super) fn knows(&self, hash: &str) -> bool {
        self.known.contains_key(hash)
    }

    /// Loads a script. Returns its hash, or the error of the compiler.
    pub(super) fn load(&mut self, text: &[u8]) -> Result<String, RespValue> {
        let hash = Sha1::from(text).digest().to_string();
        if !self.knows(&hash) {
            let mut text = String::from_utf8_lossy(text).into_owned();
            self.names.insert(hash.clone(), script_name(&text));
            for (from, to) in self.mutations.iter() {
                text = text.replace(from, to);
            }
            let function = self.lua.load(text).set_name("@user_script").into_function();
            let function = function.map_err(|error| {
                let error = match error {
                    mlua::Error::SyntaxError { message, .. } => message,
                    other => other.to_string(),
                };
                RespValue::error(format!("ERR Error compiling script (new function): {error}"))
            })?;
            self.known.insert(hash.clone(), function);
        }
        Ok(hash)
    }

    /// Runs a script that it knows.
    pub(super) fn run(
        &self,
        hash: &str,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
        version: ServerVersion,
    ) -> RespValue {
        let ran = self.try_run(hash, keys, args, version);
        ran.unwrap_or_else(|error| RespValue::error(format!("ERR {error}")))
    }

    fn try_run(
        &self,
        hash: &str,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
        version: ServerVersion,
    ) -> mlua::Result<RespValue> {
        let table = |items: &[Vec<u8>]| {
            let table = self.lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(self.lua.create_string(item)?)?;
            }
            Ok::<_, mlua::Error>(table)
        };
        self.lua.globals().raw_set("KEYS", table(keys)?)?;
        self.lua.globals().raw_set("ARGV", table(args)?)?;
        let (is_done, value): (bool, Value) = self.guard.call(&self.known[hash])?;
        if is_done {
            return reply(&value);
        }
        let Value::Table(error) = value else { return Err(mlua::Error::runtime("no error")) };
        let text = text_of(&error.raw_get::<LuaString>("err")?);
        let of_command: bool = error.raw_get("of_command")?;
        let line: Option<usize> = error.raw_get("line")?;
        let line = line.map_or_else(String::new, |line| line.to_string());
        Ok(RespValue::error(match version {
            ServerVersion::V6 => {
                let place = format!("(call to f_{hash}): @user_script:{line}:");
                format!("ERR Error running script {place} {}", text.trim_end())
            }
            _ => {
                let begin = if of_command { "" } else { "ERR " };
                let hash = match version {
                    ServerVersion::Valkey => String::new(),
                    _ => format!("{hash}, "),
                };
                format!("{begin}{text} script: {hash}on @user_script:{line}.")
            }
        }))
    }
}

/// Runs a function, and makes a table of its error.
const GUARD: &str = "
local failed = ...
return function(script) return xpcall(script, failed) end
";

/// The error of a command that was called by `redis.call`.
#[derive(Debug)]
struct CommandFailed(String);

impl fmt::Display for CommandFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for CommandFailed {}

/// Makes a table of what a script has raised: the text, and the line of the script.
fn failed(lua: &Lua, raised: Value) -> mlua::Result<Table> {
    let text = match &raised {
        Value::Error(error) => error.downcast_ref::<CommandFailed>().map(|it| it.0.clone()),
        Value::Table(table) => table.raw_get("err")?,
        _ => None,
    };
    let table = lua.create_table()?;
    table.raw_set("of_command", text.is_some())?;
    table.raw_set("err", text.map_or_else(|| raised.to_string(), Ok)?)?;
    table.raw_set("line", line(lua))?;
    Ok(table)
}

/// The line of the script that runs.
fn line(lua: &Lua) -> Option<usize> {
    let at = |level| {
        lua.inspect_stack(level, |it| {
            let is_script = it.source().source.is_some_and(|source| source == "@user_script");
            is_script.then(|| it.current_line()).flatten()
        })
    };
    (0..12).find_map(|level| at(level).flatten())
}

fn call(
    lua: &Lua,
    state: &Mutex<ServerState>,
    words: &MultiValue,
    raises: bool,
) -> mlua::Result<Value> {
    let words: mlua::Result<Option<Vec<_>>> =
        words.iter().map(|word| argument(lua, word)).collect();
    let mut state = locked(state);
    let ran = words?.ok_or(NO_ARGUMENT).and_then(|words| run_in_script(&mut state, &words));
    let reply = ran.unwrap_or_else(|refusal| {
        RespValue::error(match state.version {
            ServerVersion::V6 => {
                let line = line(lua).map_or_else(String::new, |line| line.to_string());
                format!("@user_script: {line}: {}", of_redis_6(refusal))
            }
            ServerVersion::Valkey => of_valkey(refusal).into(),
            _ => refusal.into(),
        })
    });
    drop(state);
    match reply {
        RespValue::Error(text) if raises => Err(mlua::Error::external(CommandFailed(text))),
        reply => to_lua(lua, reply),
    }
}

/// An argument of a command. None if it can be none.
fn argument(lua: &Lua, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    Ok(match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => {
            let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
            Some(format.call::<LuaString>(("%.17g", *number))?.as_bytes().to_vec())
        }
        _ => None,
    })
}

/// Runs a command. The error is that of one that is refused before.
fn run_in_script(state: &mut ServerState, words: &[Vec<u8>]) -> Result<RespValue, &'static str> {
    let name = words.first().ok_or(NO_COMMAND)?;
    let command = DataCommand::named(name, state.version).ok_or(UNKNOWN)?;
    if !command.accepts(words.len()) {
        return Err(WRONG_NUMBER);
    }
    if command.kind.writes()
        && let Some(refusal) = state.refusal()
    {
        return Err(refusal);
    }
    let has_written = state.has_written;
    if command.kind == CommandKind::Grow && state.is_full && !has_written {
        return Err(FULL);
    }
    state.has_written |= command.kind.writes();
    Ok(command.call(state, words))
}

/// How Redis 6.2 says why it refuses a command of a script.
fn of_redis_6(refusal: &str) -> String {
    match refusal {
        NO_ARGUMENT => "Lua redis() command arguments must be strings or integers".into(),
        NO_COMMAND => "Please specify at least one argument for redis.call()".into(),
        UNKNOWN => "Unknown Redis command called from Lua script".into(),
        WRONG_NUMBER => "Wrong number of args calling Redis command From Lua script".into(),
        other => format!("-{other}\r\n"),
    }
}

/// How Valkey says it.
fn of_valkey(refusal: &str) -> &str {
    match refusal {
        NO_ARGUMENT => "ERR Command arguments must be strings or integers",
        NO_COMMAND => "ERR Please specify at least one argument for this call",
        UNKNOWN => "ERR Unknown command called from script",
        WRONG_NUMBER => "ERR Wrong number of args calling command from script",
        other => other,
    }
}

const NO_ARGUMENT: &str = "ERR Lua redis lib command arguments must be strings or integers";
const NO_COMMAND: &str = "ERR Please specify at least one argument for this redis.call() call";
const UNKNOWN: &str = "ERR Unknown Redis command called from script";
const WRONG_NUMBER: &str = "ERR Wrong number of args calling Redis command from script";

/// What a full server says.
pub(super) const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn to_lua(lua: &Lua, reply: RespValue) -> mlua::Result<Value> {
    let field = |name: &str, text: String| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        RespValue::Status(text) => field("ok", text),
        RespValue::Error(text) => field("err", text),
        RespValue::Int(number) => Ok(Value::Number(number as f64)),
        RespValue::Bytes(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        RespValue::Nil | RespValue::Nothing => Ok(Value::Boolean(false)),
        RespValue::Array(items) | RespValue::Map(items) | RespValue::Push(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

fn reply(value: &Value) -> mlua::Result<RespValue> {
    Ok(match value {
        Value::String(text) => RespValue::Bytes(text.as_bytes().to_vec()),
        Value::Integer(number) => RespValue::Int(*number),
        Value::Number(number) => RespValue::Int(*number as i64),
        Value::Boolean(true) => RespValue::Int(1),
        Value::Table(table) => {
            if let Some(text) = table.raw_get::<Option<LuaString>>("err")? {
                return Ok(RespValue::Error(text_of(&text).trim_end().to_owned()));
            }
            if let Some(text) = table.raw_get::<Option<LuaString>>("ok")? {
                return Ok(RespValue::Status(text_of(&text)));
            }
            let mut items = Vec::new();
            // The first nil ends it.
            for place in 1.. {
                match table.raw_get::<Value>(place)? {
                    Value::Nil => break,
                    item => items.push(reply(&item)?),
                }
            }
            RespValue::Array(items)
        }
        _ => RespValue::Nil,
    })
}

fn text_of(text: &LuaString) -> String {
    text.to_string_lossy()
}

/// The widths of a format: the scripts use unsigned numbers, the high byte first.
fn widths(format: &str) -> mlua::Result<Vec<usize>> {
    let parts = format.strip_prefix(">I").ok_or_else(|| mlua::Error::runtime(format))?;
    parts.split('I').map(|width| width.parse().map_err(mlua::Error::external)).collect()
}

fn pack(lua: &Lua, (format, values): (String, MultiValue)) -> mlua::Result<LuaString> {
    let mut packed = Vec::new();
    let mut values = values.into_iter();
    for width in widths(&format)? {
        let value = lua.coerce_number(values.next().unwrap_or_default())?;
        let value = value.ok_or_else(|| mlua::Error::runtime("number expected"))?;
        let bits = if value < 0.0 { value as i64 as u64 } else { value as u64 };
        packed.extend_from_slice(&bits.to_be_bytes()[8 - width..]);
    }
    lua.create_string(packed)
}

fn unpack(
    _: &Lua,
    (format, bytes, at): (String, LuaString, Option<usize>),
) -> mlua::Result<MultiValue> {
    let mut at = at.unwrap_or(1) - 1;
    let bytes = bytes.as_bytes();
    let mut values = MultiValue::new();
    for width in widths(&format)? {
        let part = bytes.get(at..at + width);
        let part = part.ok_or_else(|| mlua::Error::runtime("data string too short"))?;
        let value = part.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        values.push_back(Value::Number(value as f64));
        at += width;
    }
    values.push_back(Value::Number((at + 1) as f64));
    Ok(values)
}
