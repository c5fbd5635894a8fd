//! Roles: what a server is beside others, and what it says of that.

use super::cluster::{ClusterView, host_and_port};
use super::resp::RespValue;

/// What a server is beside others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerRole {
    /// It takes writes.
    #[default]
    Primary,
    /// It refuses writes, and copies the server at this address.
    Replica(String),
    /// It stores nothing, and names the primary of a service.
    Sentinel(NamedPrimary),
    /// It is a node of a cluster.
    Node(ClusterView),
}

/// A primary, as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPrimary {
    /// Its address.
    pub address: String,
    /// How many failovers there were.
    pub epoch: u64,
}

impl ServerRole {
    /// Whether it takes writes.
    pub fn is_primary(&self) -> bool {
        match self {
            Self::Primary => true,
            Self::Replica(_) | Self::Sentinel(_) => false,
            Self::Node(view) => view.is_primary(),
        }
    }

    /// The fields of `HELLO` about it.
    pub(super) fn hello(&self) -> Vec<RespValue> {
        let (mode, role) = match self {
            Self::Primary => ("standalone", Some("master")),
            Self::Replica(_) => ("standalone", Some("replica")),
            Self::Sentinel(_) => ("sentinel", None),
            Self::Node(view) if view.is_primary() => ("cluster", Some("master")),
            Self::Node(_) => ("cluster", Some("replica")),
        };
        let role = role.map(|role| ["role", role]).into_iter().flatten();
        ["mode", mode].into_iter().chain(role).map(RespValue::bytes).collect()
    }

    /// The reply to `ROLE`.
    pub(super) fn reply(&self) -> RespValue {
        let text = |text: &str| RespValue::bytes(text);
        RespValue::Array(match self {
            Self::Primary | Self::Node(_) => {
                vec![text("master"), RespValue::Int(0), RespValue::Array(Vec::new())]
            }
            Self::Replica(primary) => {
                let (host, port) = host_and_port(primary);
                let port = RespValue::Int(port.parse().unwrap_or_default());
                vec![text("slave"), text(host), port, text("connected"), RespValue::Int(0)]
            }
            Self::Sentinel(_) => {
                vec![text("sentinel"), RespValue::Array(vec![text(SERVICE)])]
            }
        })
    }
}

impl NamedPrimary {
    /// The reply to `SENTINEL`.
    pub(super) fn reply(&self, args: &[Vec<u8>]) -> Option<RespValue> {
        let [what, service] = args else { return None };
        let (host, port) = host_and_port(&self.address);
        let is_known = service == SERVICE.as_bytes();
        Some(match &*what.to_ascii_lowercase() {
            b"get-master-addr-by-name" if is_known => {
                RespValue::Array([host, port].map(RespValue::bytes).into())
            }
            b"get-master-addr-by-name" => RespValue::Nil,
            b"master" if is_known => {
                let epoch = self.epoch.to_string();
                let fields = ["name", SERVICE, "ip", host, "port", port, "config-epoch", &epoch];
                RespValue::Map(fields.map(RespValue::bytes).into())
            }
            b"master" => RespValue::error("ERR No such master with that name"),
            _ => return None,
        })
    }

    /// What a sentinel publishes when it learns of this primary after another one.
    pub(crate) fn switched_from(&self, former: &Self) -> String {
        let words = [host_and_port(&former.address), host_and_port(&self.address)];
        let words = words.map(|(host, port)| format!("{host} {port}"));
        format!("{SERVICE} {}", words.join(" "))
    }
}

/// The service whose primary sentinels name.
pub(crate) const SERVICE: &str = "sim";
