//! The options of a lock by the sessions of a database.

use std::path::PathBuf;
use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::{FirstError, namespace_of, within};

use crate::instants::dependable;

/// The options of a lock by the sessions of a database, which its address tells: `MySqlOptions` and
/// `PostgresOptions`.
#[derive(Clone)]
#[must_use]
pub struct SessionOptions<A> {
    pub(crate) address: A,
    pub(crate) namespace: String,
    /// How long a request may take, besides the wait for a holder.
    pub(crate) timeout: Duration,
    pub(crate) session_timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) is_encrypted: bool,
    /// The authorities, if not those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) wrong: FirstError,
}

mod sealed {
    use std::fmt;

    /// The address of a database. Its `Debug` shows neither user nor password.
    #[allow(unnameable_types, reason = "it is sealed: there is one for each database")]
    pub trait DatabaseAddress: Clone + fmt::Debug + Send + Sync + 'static {
        /// The form that an address must have, for the error.
        const FORM: &'static str;

        /// The parameter of an address without TLS, which is the default.
        const PLAIN: &'static str;

        /// The parameters that ask for TLS.
        const ENCRYPTED: &'static [&'static str];

        /// That it may have no others about TLS, for the error.
        const WRONG_TLS: &'static str;

        /// Parses an address without parameters about TLS.
        fn parse(url: &str, is_encrypted: bool) -> Option<Self>;
    }
}

pub(crate) use sealed::DatabaseAddress;

impl<A: DatabaseAddress> SessionOptions<A> {
    /// Options for an address: `mysql://` with a database, which has the tables of the locks, or
    /// `postgresql://`. Services share locks if they have the same namespace.
    ///
    /// Connections are encrypted if the address has the parameter `sslmode=require` (PostgreSQL) or
    /// `require_ssl=true` (MySQL). The certificate of the server must be for the host of the address, and
    /// of an authority that [`ca_file`](Self::ca_file) says.
    ///
    /// # Errors
    /// If the address is not valid, or has another parameter about TLS. The message repeats no part of
    /// it, because any may be a password. If the namespace is not 1 to 64 of `A-Z a-z 0-9 _ . -`.
    pub fn new(url: &str, namespace: &str) -> Result<Self, ConfigError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (tls, others): (Vec<_>, Vec<_>) = query.split('&').partition(|it| is_about_tls(it));
        let is_encrypted = tls.iter().any(|parameter| A::ENCRYPTED.contains(parameter));
        let is_known = |parameter| A::PLAIN == parameter || A::ENCRYPTED.contains(&parameter);
        if !tls.iter().all(|parameter| is_known(*parameter)) {
            return Err(ConfigError::Url { reason: A::WRONG_TLS });
        }
        let others = [base, &others.join("&")].join("?");
        let url = if tls.is_empty() { url } else { &others };
        let address = A::parse(url, is_encrypted).ok_or(ConfigError::Url { reason: A::FORM })?;
        Ok(Self {
            address,
            namespace: namespace_of(namespace)?,
            timeout: Duration::from_secs(2),
            session_timeout: Duration::from_secs(6),
            connections: 64,
            is_encrypted,
            ca_file: None,
            wrong: FirstError::default(),
        })
    }

    /// Sets how long the server may take for an answer, and for a connection. The patience of the
    /// caller is added to it. `connect` fails if it is not from 1 ms to 60 s.
    ///
    /// Default: 2 s. A connection takes several round trips, and a database that is busy is not
    /// down.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60)];
        self.wrong.set(&mut self.timeout, within("timeout of the lock", timeout, least, most));
        self
    }

    /// Sets the session timeout: the server ends a session from which it receives nothing for so
    /// long. The keys of a holder that is stopped, or was killed with its machine, stay locked until
    /// then. `connect` fails if it is not from 1 s to one hour.
    ///
    /// Default: 6 s. A session sends a request every third of it, and a healthy process does not
    /// pause for two seconds. MariaDB and MySQL count whole seconds, so they may take up to one
    /// second longer.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        let [least, most] = [Duration::from_secs(1), Duration::from_secs(60 * 60)];
        let timeout = within("session timeout of the lock", timeout, least, most);
        self.wrong.set(&mut self.session_timeout, timeout);
        self
    }

    /// Sets how many connections there may be at a time. Every claim has a connection of its own
    /// while it waits or holds. When all are in use, a claim waits for one, for its patience or the
    /// [`timeout`](Self::timeout), whichever is longer. A claim that stops waiting cancels its
    /// statement over one more connection, for a moment. `connect` fails if it is not from 1 to
    /// 10,000.
    ///
    /// Default: 64. PostgreSQL allows 100 by default, and MariaDB and MySQL 151, for all their
    /// clients.
    pub fn connections(mut self, connections: usize) -> Self {
        let connections = within("connections of the lock", connections, 1, 10_000);
        self.wrong.set(&mut self.connections, connections);
        self
    }

    /// Trusts the authorities in a PEM file, and no others. `connect` fails if the address does not ask
    /// for TLS. The file is read for each connection, so a renewed one needs no restart.
    ///
    /// Default: the authorities that this system trusts. Managed databases often have their own.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        let (setting, reason) = ("`ca_file`", "the address does not ask for TLS");
        let file = self.is_encrypted.then(|| Some(file.into()));
        let file = file.ok_or(ConfigError::NoEffect { setting, reason });
        self.wrong.set(&mut self.ca_file, file);
        self
    }

    /// How long after an answered request the session exists for certain. It is 1 % and 2 ms less
    /// than the session timeout, because clocks run at different speeds.
    pub(super) fn certain(&self) -> Duration {
        dependable(self.session_timeout)
    }

    /// How long after a request the next one is sent.
    pub(super) fn pause(&self) -> Duration {
        self.session_timeout / 3
    }
}

// Shows where the server is, and neither user nor password.
bellwether::debug_fields! { SessionOptions<A> where A: Debug => |it|
    address = it.address,
    namespace = it.namespace,
    timeout = it.timeout,
    session_timeout = it.session_timeout,
    connections = it.connections,
    is_encrypted = it.is_encrypted,
    ca_file = it.ca_file
}

/// Whether a parameter of an address is about TLS, or may be because its name is encoded.
fn is_about_tls(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    ["ssl", "tls", "verify_", "_roots", "%"].iter().any(|part| name.contains(part))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bellwether_testkit::fuzz::{Choices, fuzz};

    /// A URL, and its user, password, host, port and database.
    pub(crate) fn url(scheme: &str, choices: &mut Choices) -> (String, [String; 5]) {
        let mut word = || {
            (0..1 + choices.below(5))
                .map(|_| char::from(b'a' + choices.below(26) as u8))
                .collect::<String>()
        };
        let [user, database] = [word(), word()];
        let host = choices.pick(&["h", "db-1.internal", "10.0.0.7"]).to_owned();
        let port = (1 + choices.below(65_535)).to_string();
        let password = format!("{}hunter2", ["", "%40", "%2F", "%3A"][choices.below(4)]);
        let text = format!("{scheme}://{user}:{password}@{host}:{port}/{database}");
        let password = password.replace("%40", "@").replace("%2F", "/").replace("%3A", ":");
        (text, [user, password, host, port, database])
    }

    /// While the password, `hunter2`, is where passwords are, also in a URL that is broken.
    pub(crate) fn passwords_are_never_shown<A: DatabaseAddress>(scheme: &str) {
        fuzz(&format!("{scheme} URL, password"), 64, 1, |choices| {
            let text =
                url(scheme, choices).0.replace("%2F", choices.pick(&["%2F", "/", "1/", "?", "#"]));
            let (before, behind) = text.split_once("hunter2").unwrap_or_default();
            let (before, behind) = match choices.one_in(2) {
                true => (before.to_owned(), choices.mutated_text(behind, "@h:1/a?ssl=1,b")),
                false => (choices.mutated_text(before, ":%/"), behind.to_owned()),
            };
            let text = format!("{before}hunter2{behind}");
            let rest = before.strip_prefix(&format!("{scheme}://")).unwrap_or("@");
            let is_password = rest.contains(':') && !rest.contains('@') && behind.contains('@');
            let shown = match SessionOptions::<A>::new(&text, "shop") {
                Ok(options) => format!("{options:?} {options:#?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!is_password || !shown.contains("hunter2"), "{text}: {shown}");
        });
    }
}
