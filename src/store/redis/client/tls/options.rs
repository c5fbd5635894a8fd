//! `RedisTls`: the options of TLS.

use std::fmt;
use std::path::PathBuf;

use rustls::pki_types::ServerName;

use super::material::{PemSource, authorities, identity};
use crate::config_error::ConfigError;

/// How `rediss://` connections are encrypted: which servers the client trusts, and what it presents
/// to them.
///
/// ```no_run
/// # fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether::RedisOptions;
/// use bellwether::redis::RedisTls;
///
/// let tls = RedisTls::new()
///     .ca_file("/etc/redis-tls/ca.crt")
///     .client_files("/etc/redis-tls/tls.crt", "/etc/redis-tls/tls.key");
/// let options = RedisOptions::new("rediss://cache.example.org", "shop")?.tls(tls)?;
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
///
/// # Renewed certificates
/// Files are read again for each connection, so a renewed certificate needs no restart. Connections
/// that are open keep what they were opened with. If the new files cannot be read or do not fit
/// together, the former ones stay in use, and a warning is logged: a renewal often replaces one file
/// after the other. So an authority whose file is removed stays trusted until a restart. To revoke one,
/// replace the file by one without it, and close the open connections (`CLIENT KILL TYPE normal`).
///
/// # What it costs
/// Connections of one store or lock share its sessions, so a reconnect is a short handshake
/// (resumption). The roots of the system are read once per process.
///
/// TLS 1.2 and 1.3 are spoken. The cryptography is that of the default provider of `rustls` in this
/// process, if the program has installed one, and `ring` otherwise.
#[derive(Clone, Default)]
pub struct RedisTls {
    pub(super) authorities: Option<PemSource>,
    pub(super) identity: Option<[PemSource; 2]>,
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) is_unverified: bool,
}

impl RedisTls {
    /// TLS with servers whose certificates are signed by an authority that this system trusts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in a PEM file, and no others.
    ///
    /// Default: the roots of the system. On Linux, the environment variables `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` say where they are. Managed services usually have certificates that systems
    /// trust, or give a file.
    #[must_use]
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { authorities: Some(PemSource::File(path.into())), ..self }
    }

    /// Trusts the authorities in a PEM text, and no others.
    ///
    /// # Errors
    /// If it holds no certificate.
    pub fn ca_pem(self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        authorities(pem.as_ref()).map_err(|reason| ConfigError::Tls { reason })?;
        Ok(Self { authorities: Some(PemSource::text(pem.as_ref())), ..self })
    }

    /// Presents the certificate chain in a PEM file, with the private key in another one or the
    /// same.
    ///
    /// Default: none. Servers ask for one where `tls-auth-clients` is on, as it is by default.
    #[must_use]
    pub fn client_files(self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let files = [chain.into(), key.into()].map(PemSource::File);
        Self { identity: Some(files), ..self }
    }

    /// Presents the certificate chain in a PEM text, with the private key in another one or the
    /// same.
    ///
    /// # Errors
    /// If there is no certificate or no key.
    pub fn client_pem(
        self,
        chain: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
    ) -> Result<Self, ConfigError> {
        let texts = [chain.as_ref(), key.as_ref()];
        identity(texts[0], texts[1]).map_err(|reason| ConfigError::Tls { reason })?;
        Ok(Self { identity: Some(texts.map(PemSource::text)), ..self })
    }

    /// Sets the name that certificates of servers must be for.
    ///
    /// Default: the host of the address. Set it where servers are reached by another name, such as
    /// an IP address or a tunnel. It holds for all servers of the options.
    ///
    /// # Errors
    /// If it is neither a DNS name nor an IP address.
    pub fn server_name(self, name: &str) -> Result<Self, ConfigError> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| ConfigError::Tls { reason: "the server name is no DNS name" })?;
        Ok(Self { server_name: Some(name), ..self })
    }

    /// Accepts any certificate, of any server, and logs a warning. **Others on the network can then read and change all
    /// data, and read the password.** It is for experiments only.
    ///
    /// Default: certificates are verified.
    #[must_use]
    pub fn dangerously_accept_any_certificate(self) -> Self {
        Self { is_unverified: true, ..self }
    }
}

/// Shows files by their paths, and nothing of what was given as a text.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("authorities", &self.authorities)
            .field("identity", &self.identity)
            .field("server_name", &self.server_name)
            .field("is_unverified", &self.is_unverified)
            .finish()
    }
}
