//! The state of a server: its values, its clients, and what they have asked to be told.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::keyspace::{Keyspace, StoredName};
use super::resp::RespValue;
use super::role::ServerRole;
use super::version::ServerVersion;

/// The number of a connection.
pub type ClientId = u64;

/// All that commands read and write.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    pub(crate) keyspace: Keyspace,
    pub(crate) clients: BTreeMap<ClientId, ClientRecord>,
    /// The clients that have read a name (client tracking).
    readers: HashMap<Vec<u8>, BTreeSet<ClientId>>,
    pub(crate) channels: BTreeMap<Vec<u8>, BTreeSet<ClientId>>,
    /// The time of the current command, in microseconds.
    pub(crate) now: u64,
    pub(crate) role: ServerRole,
    pub(super) version: ServerVersion,
    /// The client whose command runs.
    pub(crate) current: ClientId,
    /// Names of which the current client is told after its reply. None stands for all names.
    told_later: Vec<Option<Vec<u8>>>,
    /// The names of the current script. Before Redis 7.2, each command that reads counts as a read of all.
    pub(crate) script_keys: Option<Vec<Vec<u8>>>,
    /// Whether the current script has written.
    pub(crate) has_written: bool,
    /// Whether writes that need memory are refused.
    pub(crate) is_full: bool,
    /// Whether new connections are to a replica, too.
    pub(crate) leads_to_replica: bool,
    /// What a node of a cluster has published.
    pub(crate) published: Vec<[Vec<u8>; 2]>,
    /// Clients with output that was not taken.
    pub(crate) noisy: BTreeSet<ClientId>,
}

#[derive(Debug, Default)]
pub(crate) struct ClientRecord {
    pub(crate) is_resp3: bool,
    pub(crate) is_tracked: bool,
    /// Whether it has sent `ASKING` before its next command.
    pub(crate) asks: bool,
    /// Whether the server at its other end is a replica of this one.
    pub(crate) is_of_replica: bool,
    pub(crate) subscriptions: BTreeSet<Vec<u8>>,
    /// The begin of a command.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl ServerState {
    pub(crate) fn now_ms(&self) -> i64 {
        (self.now / 1000) as i64
    }

    /// The error of a write, if the server takes none.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let is_of_replica = self.clients.get(&self.current).is_some_and(|it| it.is_of_replica);
        let is_replica = is_of_replica || matches!(self.role, ServerRole::Replica(_));
        is_replica.then_some(READONLY)
    }

    pub(crate) fn client(&mut self) -> &mut ClientRecord {
        self.clients.entry(self.current).or_default()
    }

    pub(crate) fn send(&mut self, client: ClientId, message: &RespValue) {
        if let Some(record) = self.clients.get_mut(&client) {
            message.write(record.is_resp3, &mut record.output);
            self.noisy.insert(client);
        }
    }

    pub(crate) fn find(&mut self, name: &[u8]) -> Option<&StoredName> {
        let now = self.now_ms();
        if self.keyspace.find(name, now).1 {
            self.changed(name);
        }
        self.keyspace.find(name, now).0
    }

    /// The same, to change it.
    pub(crate) fn find_mut(&mut self, name: &[u8]) -> Option<&mut StoredName> {
        self.find(name)?;
        self.keyspace.find_mut(name)
    }

    /// Notes that the current client has read names.
    pub(crate) fn were_read(&mut self, names: &[Vec<u8>]) {
        if self.client().is_tracked {
            let current = self.current;
            for name in self.script_keys.as_deref().unwrap_or(names) {
                self.readers.entry(name.clone()).or_default().insert(current);
            }
        }
    }

    /// Tells the clients that have read a name that it has changed.
    pub(crate) fn changed(&mut self, name: &[u8]) {
        for reader in self.readers.remove(name).unwrap_or_default() {
            if reader == self.current {
                self.told_later.push(Some(name.to_vec()));
            } else {
                self.tell_changed(reader, Some(name));
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        self.keyspace = Keyspace::default();
        self.readers.clear();
        let tracked: Vec<_> =
            self.clients.iter().filter(|(_, it)| it.is_tracked).map(|(id, _)| *id).collect();
        for client in tracked {
            // Redis 8 tells it before the reply.
            if client == self.current && self.version != ServerVersion::V8 {
                self.told_later.push(None);
            } else {
                self.tell_changed(client, None);
            }
        }
    }

    /// The command of the current client has been answered.
    pub(crate) fn answered(&mut self) {
        for name in std::mem::take(&mut self.told_later) {
            self.tell_changed(self.current, name.as_deref());
        }
    }

    fn tell_changed(&mut self, client: ClientId, name: Option<&[u8]>) {
        // RESP2 has no messages beside replies.
        if self.clients.get(&client).is_some_and(|it| it.is_tracked && it.is_resp3) {
            let name =
                name.map_or(RespValue::Nil, |it| RespValue::Array(vec![RespValue::bytes(it)]));
            self.send(client, &RespValue::Push(vec![RespValue::bytes("invalidate"), name]));
        }
    }

    pub(crate) fn disconnect(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.noisy.remove(&client);
        for clients in self.readers.values_mut().chain(self.channels.values_mut()) {
            clients.remove(&client);
        }
    }
}

const READONLY: &str = "READONLY You can't write against a read only replica.";
