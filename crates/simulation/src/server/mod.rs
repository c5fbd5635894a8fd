//! A Redis in this process: the commands that the scripts and the client use, and the scripts themselves.

mod cluster;
mod commands;
mod keyspace;
mod resp;
mod role;
mod scripts;
mod shown;
mod state;
mod version;

use std::sync::{Arc, Mutex};

pub use self::cluster::ClusterView;
pub(crate) use self::cluster::{SLOTS, slot_of};
pub(crate) use self::role::SERVICE;
pub use self::role::{NamedPrimary, ServerRole};
pub use self::scripts::Mutations;
pub use self::state::ClientId;
pub use self::version::ServerVersion;

use self::cluster::names_of;
use self::commands::{CommandKind, DataCommand, integer, not_an_integer, publish, syntax};
use self::keyspace::{Keyspace, StoredName};
use self::resp::{RespValue, read_request};
use self::scripts::{FULL, Scripts};
use self::shown::shown;
use self::state::{ClientRecord, ServerState};
use crate::locked;

/// A server. Its caller gives it commands and the time, and takes the bytes that it sends.
#[derive(Debug)]
pub struct ModelServer {
    state: Arc<Mutex<ServerState>>,
    scripts: Scripts,
    last_client: ClientId,
    /// The commands that were executed, as a person reads them, if they are to be shown.
    pub(crate) log: Option<Vec<String>>,
}

/// A command that was executed, and how much work that was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutedCommand {
    /// Whether a script has run.
    pub(crate) is_script: bool,
    /// How many words follow that of the command.
    pub(crate) names: usize,
    /// Whether it names a key: neither handshakes nor subscriptions do.
    pub(crate) has_key: bool,
    /// Those of it and of its reply.
    pub(crate) bytes: usize,
}

/// What a server has stored at a time.
#[derive(Clone, Debug)]
pub struct Snapshot(Keyspace);

impl ModelServer {
    /// An empty server, whose scripts are changed by these replacements.
    pub fn new(version: ServerVersion, mutations: Mutations) -> Self {
        let state = Arc::<Mutex<ServerState>>::default();
        locked(&state).version = version;
        let scripts = Scripts::new(&state, mutations).expect("an interpreter");
        Self { state, scripts, last_client: 0, log: None }
    }

    /// All that it stores now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(locked(&self.state).keyspace.clone())
    }

    /// Stores what a snapshot has, in place of all else.
    pub fn restore(&mut self, Snapshot(keyspace): Snapshot) {
        locked(&self.state).keyspace = keyspace;
    }

    /// The names of what it stores at a time, in order.
    pub fn names(&self, now: u64) -> Vec<Vec<u8>> {
        locked(&self.state).keyspace.names((now / 1000) as i64)
    }

    /// Forgets a name, as a server that needs its memory.
    pub fn evict(&mut self, name: &[u8]) {
        let mut state = locked(&self.state);
        state.current = 0;
        if state.keyspace.remove(name) {
            state.changed(name);
        }
    }

    /// Takes a name with its value away, for another server.
    pub(crate) fn take(&self, name: &[u8]) -> Option<StoredName> {
        let mut state = locked(&self.state);
        state.current = 0;
        let taken = state.keyspace.take(name)?;
        state.changed(name);
        Some(taken)
    }

    /// Stores what another server had.
    pub(crate) fn give(&self, name: &[u8], stored: StoredName) {
        let mut state = locked(&self.state);
        state.current = 0;
        state.keyspace.insert(name, stored);
        state.changed(name);
    }

    /// What it has published to channels. The other nodes of a cluster publish it, too.
    pub(crate) fn take_published(&mut self) -> Vec<[Vec<u8>; 2]> {
        std::mem::take(&mut locked(&self.state).published)
    }

    /// Publishes what another node has published.
    pub(crate) fn publish(&self, message: &[Vec<u8>; 2]) {
        publish(&mut locked(&self.state), message);
    }

    /// Forgets the scripts.
    pub fn forget_scripts(&mut self) {
        self.scripts.forget();
    }

    /// Refuses to store more, or not.
    pub fn set_full(&mut self, is_full: bool) {
        locked(&self.state).is_full = is_full;
    }

    /// Becomes the primary behind its address, in place of another server. Open connections are to that one,
    /// which is its replica now and lags behind by nothing. So are new ones, as long as the address
    /// `leads_to_replica`.
    pub(crate) fn replace_primary(&self, leads_to_replica: bool) {
        let mut state = locked(&self.state);
        state.leads_to_replica = leads_to_replica;
        state.clients.values_mut().for_each(|client| client.is_of_replica = true);
    }

    /// From now on, its address leads to it.
    pub(crate) fn lead_to_primary(&self) {
        locked(&self.state).leads_to_replica = false;
    }

    /// What it is beside others.
    pub fn role(&self) -> ServerRole {
        locked(&self.state).role.clone()
    }

    /// Makes it something else beside others. A sentinel that learns of another primary publishes that.
    pub fn set_role(&mut self, role: ServerRole) {
        let mut state = locked(&self.state);
        let former = std::mem::replace(&mut state.role, role);
        if let (ServerRole::Sentinel(former), ServerRole::Sentinel(now)) = (former, &state.role) {
            let message = now.switched_from(&former).into_bytes();
            publish(&mut state, &[SWITCHED.to_vec(), message]);
        }
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        locked(&self.state).clients.len()
    }

    /// Whether a connection is told of messages.
    pub fn is_subscribed(&self, client: ClientId) -> bool {
        let state = locked(&self.state);
        state.clients.get(&client).is_some_and(|client| !client.subscriptions.is_empty())
    }

    /// A new connection.
    pub fn connect(&mut self) -> ClientId {
        self.last_client += 1;
        let mut state = locked(&self.state);
        let is_of_replica = state.leads_to_replica;
        state
            .clients
            .insert(self.last_client, ClientRecord { is_of_replica, ..Default::default() });
        self.last_client
    }

    /// Ends a connection.
    pub fn disconnect(&mut self, client: ClientId) {
        locked(&self.state).disconnect(client);
    }

    /// Takes bytes that a connection has received, at a time of the server in microseconds. What is a whole
    /// command by then is executed. Returns how many commands that were.
    pub fn receive(&mut self, client: ClientId, bytes: &[u8], now: u64) -> u64 {
        let mut state = locked(&self.state);
        let Some(record) = state.clients.get_mut(&client) else { return 0 };
        record.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut record.input);
        drop(state);
        let (mut at, mut commands) = (0, 0);
        while let Some((words, length)) = read_request(&input[at..]) {
            at += length;
            commands += 1;
            self.execute(client, &words, now);
        }
        let mut state = locked(&self.state);
        if let Some(record) = state.clients.get_mut(&client) {
            record.input = input[at..].to_vec();
        }
        commands
    }

    /// Takes bytes that a connection has received, which `execute_next` executes.
    pub(crate) fn feed(&self, client: ClientId, bytes: &[u8]) {
        if let Some(record) = locked(&self.state).clients.get_mut(&client) {
            record.input.extend_from_slice(bytes);
        }
    }

    /// Executes the first command of a connection at a time. None if it has no whole one.
    pub(crate) fn execute_next(&mut self, client: ClientId, now: u64) -> Option<ExecutedCommand> {
        let mut state = locked(&self.state);
        let record = state.clients.get_mut(&client)?;
        let (words, length) = read_request(&record.input)?;
        record.input.drain(..length);
        let before = record.output.len();
        drop(state);
        self.execute(client, &words, now);
        let state = locked(&self.state);
        let reply = state.clients.get(&client)?.output.get(before..).unwrap_or_default();
        let is_script = matches!(&*words[0].to_ascii_lowercase(), b"eval" | b"evalsha");
        Some(ExecutedCommand {
            is_script: is_script && !reply.starts_with(b"-NOSCRIPT"),
            names: words.len() - 1,
            has_key: words.iter().any(|word| word.contains(&b'{')),
            bytes: length + reply.len(),
        })
    }

    fn execute(&mut self, client: ClientId, words: &[Vec<u8>], now: u64) {
        let mut state = locked(&self.state);
        (state.current, state.now, state.has_written) = (client, now, false);
        drop(state);
        let reply = self.reply(words);
        if let Some(log) = &mut self.log {
            let script = match &*words[0].to_ascii_lowercase() {
                b"eval" => Some("a script"),
                b"evalsha" => words.get(1).map(|hash| self.scripts.name(hash)),
                _ => None,
            };
            let mut bytes = Vec::new();
            reply.write(true, &mut bytes);
            log.push(shown(words, script, &bytes));
        }
        let mut state = locked(&self.state);
        state.send(client, &reply);
        state.answered();
    }

    /// The connections to which something is to be sent, and that.
    pub fn take_output(&mut self) -> Vec<(ClientId, Vec<u8>)> {
        let mut state = locked(&self.state);
        let noisy = std::mem::take(&mut state.noisy);
        let output =
            |client| Some((client, std::mem::take(&mut state.clients.get_mut(&client)?.output)));
        noisy.into_iter().filter_map(output).collect()
    }

    fn reply(&mut self, words: &[Vec<u8>]) -> RespValue {
        let name = words[0].to_ascii_lowercase();
        let args = &words[1..];
        if !self.is_allowed(&name) {
            let text = String::from_utf8_lossy(&name);
            return RespValue::error(format!("ERR Can't execute '{text}': {SUBSCRIBED}"));
        }
        if let Some(refusal) = self.refusal(words) {
            return refusal;
        }
        match (&*name, args.len()) {
            (b"hello", _) => self.hello(args),
            (b"client", 1..) => self.client(&args[0], &args[1..]),
            (b"script", 1..) => self.script(&args[0], &args[1..]),
            (b"eval", 2..) => self.eval(args, true),
            (b"evalsha", 2..) => self.eval(args, false),
            (b"subscribe", 1..) => self.subscribe(args),
            (b"config", 3) if args[1] == b"maxmemory" => {
                locked(&self.state).is_full = args[2] != b"0";
                RespValue::ok()
            }
            (b"asking", 0) => {
                locked(&self.state).client().asks = true;
                RespValue::ok()
            }
            (b"cluster", 1) if args[0].eq_ignore_ascii_case(b"slots") => self.slots(),
            (b"role", 0) => locked(&self.state).role.reply(),
            (b"flushall", 0) => {
                locked(&self.state).flush();
                RespValue::ok()
            }
            (b"sentinel", _) => self.sentinel(args).unwrap_or_else(|| self.data(words)),
            _ => self.data(words),
        }
    }

    /// Whether a connection that has subscribed by RESP2 may send a command.
    fn is_allowed(&self, name: &[u8]) -> bool {
        let mut state = locked(&self.state);
        let client = state.client();
        client.is_resp3 || client.subscriptions.is_empty() || matches!(name, b"ping" | b"subscribe")
    }

    fn data(&self, words: &[Vec<u8>]) -> RespValue {
        let mut state = locked(&self.state);
        let Some(command) = DataCommand::named(&words[0], state.version) else {
            return unknown(words, state.version);
        };
        if !command.accepts(words.len()) {
            let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
            let error = format!("ERR wrong number of arguments for '{name}' command");
            return RespValue::error(error);
        }
        if command.kind.writes()
            && let Some(refusal) = state.refusal()
        {
            return RespValue::error(refusal);
        }
        if command.kind == CommandKind::Grow && state.is_full {
            return RespValue::error(FULL);
        }
        command.call(&mut state, words)
    }

    fn hello(&self, args: &[Vec<u8>]) -> RespValue {
        let mut state = locked(&self.state);
        let is_resp3 = match args.first().map(Vec::as_slice) {
            None => state.client().is_resp3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return RespValue::error("NOPROTO unsupported protocol version"),
        };
        state.client().is_resp3 = is_resp3;
        let text = RespValue::bytes;
        let version = if is_resp3 { 3 } else { 2 };
        let [name, number] = state.version.name_and_number();
        let mut fields = vec![
            text("server"),
            text(name),
            text("version"),
            text(number),
            text("proto"),
            RespValue::Int(version),
            text("id"),
            RespValue::Int(state.current as i64),
        ];
        fields.extend(state.role.hello());
        fields.extend([text("modules"), RespValue::Array(Vec::new())]);
        RespValue::Map(fields)
    }

    /// Why a node of a cluster does not execute a command.
    fn refusal(&self, words: &[Vec<u8>]) -> Option<RespValue> {
        let mut state = locked(&self.state);
        let asks = std::mem::take(&mut state.client().asks);
        // It is not there while names are looked for.
        let role = std::mem::take(&mut state.role);
        let refusal = match &role {
            ServerRole::Node(view) => {
                let (names, version) = (names_of(words), state.version);
                view.refusal(names, asks, version, |name| state.find(name).is_some())
            }
            _ => None,
        };
        state.role = role;
        refusal
    }

    fn slots(&self) -> RespValue {
        let state = locked(&self.state);
        match &state.role {
            ServerRole::Node(view) => view.slots(state.version),
            _ => RespValue::error("ERR This instance has cluster support disabled"),
        }
    }

    fn sentinel(&self, args: &[Vec<u8>]) -> Option<RespValue> {
        match &locked(&self.state).role {
            ServerRole::Sentinel(primary) => primary.reply(args),
            _ => None,
        }
    }

    fn client(&self, what: &[u8], args: &[Vec<u8>]) -> RespValue {
        let what = String::from_utf8_lossy(what).to_ascii_uppercase();
        let mut state = locked(&self.state);
        let is_on = match args {
            [setting] if setting.eq_ignore_ascii_case(b"on") => true,
            [setting] if setting.eq_ignore_ascii_case(b"off") => false,
            _ if what == "TRACKING" => return syntax(),
            _ if what == "SETINFO" && state.version >= ServerVersion::V8 => return RespValue::ok(),
            _ => {
                let unknown = match state.version {
                    ServerVersion::V6 => "Unknown subcommand or wrong number of arguments for",
                    _ => "unknown subcommand",
                };
                let error = format!("ERR {unknown} '{what}'. Try CLIENT HELP.");
                return RespValue::error(error);
            }
        };
        state.client().is_tracked = is_on;
        RespValue::ok()
    }

    fn script(&mut self, what: &[u8], args: &[Vec<u8>]) -> RespValue {
        match (&*what.to_ascii_lowercase(), args) {
            (b"load", [text]) => {
                self.scripts.load(text).map_or_else(|error| error, RespValue::bytes)
            }
            (b"exists", [_, ..]) => {
                let knows = |hash: &Vec<u8>| self.scripts.knows(&String::from_utf8_lossy(hash));
                let exist = args.iter().map(|hash| RespValue::Int(i64::from(knows(hash))));
                RespValue::Array(exist.collect())
            }
            (b"flush", []) => {
                self.scripts.forget();
                RespValue::ok()
            }
            _ => syntax(),
        }
    }

    fn eval(&mut self, args: &[Vec<u8>], is_text: bool) -> RespValue {
        let Some(keys) = integer(&args[1]) else { return not_an_integer() };
        let rest = &args[2..];
        if keys > rest.len() as i64 {
            return RespValue::error("ERR Number of keys can't be greater than number of args");
        }
        let Ok(keys) = usize::try_from(keys) else {
            return RespValue::error("ERR Number of keys can't be negative");
        };
        let version = locked(&self.state).version;
        let hash = match is_text {
            true => match self.scripts.load(&args[0]) {
                Ok(hash) => hash,
                Err(error) => return error,
            },
            false => String::from_utf8_lossy(&args[0]).to_ascii_lowercase(),
        };
        if !self.scripts.knows(&hash) {
            let more = if version == ServerVersion::Valkey { "" } else { " Please use EVAL." };
            return RespValue::error(format!("NOSCRIPT No matching script.{more}"));
        }
        let (keys, args) = rest.split_at(keys);
        let mut state = locked(&self.state);
        state.script_keys = (version < ServerVersion::V8).then(|| keys.to_vec());
        drop(state);
        let reply = self.scripts.run(&hash, keys, args, version);
        locked(&self.state).script_keys = None;
        reply
    }

    fn subscribe(&self, channels: &[Vec<u8>]) -> RespValue {
        let mut state = locked(&self.state);
        let current = state.current;
        for channel in channels {
            state.channels.entry(channel.clone()).or_default().insert(current);
            state.client().subscriptions.insert(channel.clone());
            let count = RespValue::Int(state.client().subscriptions.len() as i64);
            let words = [RespValue::bytes("subscribe"), RespValue::bytes(channel), count];
            state.send(current, &RespValue::Push(words.into()));
        }
        RespValue::Nothing
    }
}

/// The refusal of a command that a server does not know.
fn unknown(words: &[Vec<u8>], version: ServerVersion) -> RespValue {
    let text = String::from_utf8_lossy;
    let (quote, end) = if version == ServerVersion::V6 { ('`', ", ") } else { ('\'', " ") };
    let name = text(&words[0]);
    let mut error = format!("ERR unknown command {quote}{name}{quote}, with args beginning with: ");
    for arg in &words[1..] {
        error += &format!("{quote}{}{quote}{end}", text(arg));
    }
    RespValue::error(error)
}

/// The channel of sentinels about primaries that have changed.
const SWITCHED: &[u8] = b"+switch-master";

/// What a connection may still do.
const SUBSCRIBED: &str =
    "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(server: &mut ModelServer, client: ClientId) -> bool {
        server.receive(client, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n", 1);
        let output = server.take_output().into_iter().find(|(to, _)| *to == client);
        output.expect("a reply").1.starts_with(b"-READONLY")
    }

    #[test]
    fn connections_of_before_a_failover_behind_the_address_are_to_a_replica() {
        let mut server = ModelServer::new(ServerVersion::V7, [].into());
        let before = server.connect();
        assert!(!is_refused(&mut server, before));
        server.replace_primary(true);
        let meanwhile = server.connect();
        server.lead_to_primary();
        let after = server.connect();
        assert_eq!(
            [before, meanwhile, after].map(|it| is_refused(&mut server, it)),
            [true, true, false]
        );
    }
}
