//! TLS: which servers a client trusts, what it presents to them, and what errors mean.

mod connector;
mod explain;
mod pem_file;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

pub(super) use self::connector::TlsConnector;
pub(super) use self::explain::explain;

use bellwether::ConfigError;

/// How `rediss://` connections are encrypted: which servers the client trusts, and what it presents
/// to them.
///
/// ```no_run
/// # fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_redis_client::RedisClientOptions;
/// use bellwether_redis_client::RedisTls;
///
/// let tls = RedisTls::files("/etc/tls/ca.crt", "/etc/tls/tls.crt", "/etc/tls/tls.key");
/// let options = RedisClientOptions::new("rediss://cache.example.org", "shop")?.tls(tls)?;
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
///
/// By default, it trusts the authorities that this system trusts, and presents nothing. On Linux, the
/// environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` say where those are. They are read once
/// per store or lock. Managed services usually have certificates that systems trust, or give a file.
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
/// (resumption).
///
/// By files and by default, TLS 1.2 and 1.3 are spoken. The cryptography is that of the default
/// provider of `rustls` in this process, if the program has installed one, and `ring` otherwise.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// If it is not made of files.
    config: Option<Arc<ClientConfig>>,
    /// The authorities, if not those of the system, then the certificate chain and its key.
    files: Vec<PathBuf>,
    server_name: Option<ServerName<'static>>,
}

impl RedisTls {
    /// A configuration of `rustls`, for what files cannot say: certificates in memory, other
    /// verifiers, other versions.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self { config: Some(config.into()), ..Self::default() }
    }

    /// Trusts the authorities in a PEM file, and no others.
    pub fn ca_file(authorities: impl Into<PathBuf>) -> Self {
        Self { files: vec![authorities.into()], ..Self::default() }
    }

    /// Trusts the authorities in a PEM file, and no others. Presents the certificate chain in
    /// another one, with its private key in a third one or the same.
    ///
    /// Servers ask for a certificate where `tls-auth-clients` is on, as it is by default.
    pub fn files(
        authorities: impl Into<PathBuf>,
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let files = vec![authorities.into(), chain.into(), key.into()];
        Self { files, ..Self::default() }
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
}

/// Shows files by their paths, and nothing of what they hold.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("files", &self.files)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
