//! TLS: which servers a client trusts, what it presents to them, and what errors mean.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{fmt, fs, io};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::client::TlsStream;

use super::server_error::ServerError;
use bellwether::adapter::{FirstError, locked};
use bellwether::{ConfigError, warn_throttled};

/// How `rediss://` connections are encrypted: which servers the client trusts, and what it presents
/// to them.
///
/// ```no_run
/// # fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_redis_client::RedisClientOptions;
/// use bellwether_redis_client::RedisTls;
///
/// let tls = RedisTls::files("/etc/tls/ca.crt", "/etc/tls/tls.crt", "/etc/tls/tls.key");
/// let options = RedisClientOptions::new("rediss://cache.example.org", "shop")?.tls(tls);
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
/// Each connection is a whole handshake. A resumed session would check no certificate, so one that has
/// expired would pass: the resumption of a configuration of your own is switched off.
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
    pub(super) wrong: FirstError,
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

    /// Sets the name that certificates of servers must be for. `connect` fails if it is neither a DNS
    /// name nor an IP address.
    ///
    /// Default: the host of the address. Set it where servers are reached by another name, such as
    /// an IP address or a tunnel. It holds for all servers of the options.
    #[must_use]
    pub fn server_name(mut self, name: &str) -> Self {
        let reason = "the server name is no DNS name";
        let name = ServerName::try_from(name.to_owned());
        let name = name.map(Some).map_err(|_| ConfigError::Tls { reason });
        self.wrong.set(&mut self.server_name, name);
        self
    }
}

// Shows files by their paths, and nothing of what they hold.
bellwether::debug_fields! { RedisTls => |it| files = it.files, server_name = it.server_name }

/// Encrypts the streams of a client.
pub(super) struct TlsConnector {
    tls: RedisTls,
    /// The files that were used last, and the configuration by them.
    /// Held to read and replace it, never across an `.await`.
    current: Mutex<Option<KnownConfig>>,
}

/// What files held, and the configuration by that.
type KnownConfig = (Vec<PemFile>, Arc<ClientConfig>);

impl TlsConnector {
    pub(super) fn new(tls: RedisTls) -> Self {
        let given = tls.config.clone().map(Arc::unwrap_or_clone);
        let given = given.map(|config| (Vec::new(), Arc::new(without_resumption(config))));
        Self { tls, current: Mutex::new(given) }
    }

    /// Encrypts a stream to a host.
    ///
    /// # Errors
    /// Certificate errors are [`ServerError::misconfigured`].
    pub(super) async fn encrypt(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, ServerError> {
        let config = self.config().await?;
        let name = match &self.tls.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                ServerError::misconfigured(format!("tls: `{host}` is no name for a certificate"))
            })?,
        };
        let encrypted = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
        encrypted.map_err(|error| explain(&error).unwrap_or_else(|| error.into()))
    }

    /// That of the files as they are now, or the last one that could be used.
    async fn config(&self) -> Result<Arc<ClientConfig>, ServerError> {
        let (paths, current) = (self.tls.files.clone(), locked(&self.current).clone());
        let known = current.clone();
        // Files are read, and so may be those of the system.
        let renewed = spawn_blocking(move || {
            let files = paths.into_iter().map(PemFile::read).collect::<Result<Vec<_>, _>>()?;
            match known {
                Some((known, config)) if known == files => Ok((known, config)),
                _ => config_of(&files).map(|config| (files, Arc::new(without_resumption(config)))),
            }
        });
        match (renewed.await.map_err(io::Error::other)?, current) {
            (Ok(renewed), _) => Ok(Arc::clone(&locked(&self.current).insert(renewed).1)),
            (Err(reason), Some((_, config))) => {
                warn_throttled!(target: "bellwether::store", reason, "renewed TLS files cannot be used: the former ones stay");
                Ok(config)
            }
            (Err(reason), None) => Err(ServerError::misconfigured(format!("tls: {reason}"))),
        }
    }
}

/// A file as it was read.
#[derive(Clone, PartialEq)]
struct PemFile {
    path: PathBuf,
    text: Vec<u8>,
}

impl PemFile {
    /// It may block.
    fn read(path: PathBuf) -> Result<Self, String> {
        match fs::read(&path) {
            Ok(text) => Ok(Self { path, text }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let certificates = certificates.map_err(|error| self.says(error))?;
        if certificates.is_empty() { Err(self.says("no certificate")) } else { Ok(certificates) }
    }

    fn says(&self, what: impl fmt::Display) -> String {
        format!("{}: {what}", self.path.display())
    }
}

/// The configuration by files: of the authorities, if not those of the system, then of the certificate
/// chain and its key. It may block.
fn config_of(files: &[PemFile]) -> Result<ClientConfig, String> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    match files.first() {
        Some(file) => {
            for certificate in file.certificates()? {
                roots.add(certificate).map_err(|error| file.says(error))?;
            }
        }
        None => add_authorities_of_system(&mut roots)?,
    }
    let builder = builder.with_root_certificates(roots);
    let [_, chain, key] = files else { return Ok(builder.with_no_client_auth()) };
    let private = PrivateKeyDer::from_pem_slice(&key.text);
    let private = private.map_err(|_| key.says("no private key"))?;
    let config = builder.with_client_auth_cert(chain.certificates()?, private);
    config.map_err(|error| chain.says(error))
}

/// A handshake that resumes a session does not check certificates again.
fn without_resumption(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config
}

/// Adds the authorities that this system trusts.
fn add_authorities_of_system(roots: &mut RootCertStore) -> Result<(), String> {
    let found = rustls_native_certs::load_native_certs();
    // Some certificates of a system may be malformed, and others still serve.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!("this system has no root certificates{why}: use `RedisTls::ca_file`"));
    }
    Ok(())
}

/// Explains the end of an encrypted connection before its first reply. With TLS 1.3, a server refuses a
/// certificate after the handshake, and may close the connection before its reason has been read.
pub(super) fn explain_end(error: &io::Error) -> ServerError {
    let closed = || {
        ServerError::misconfigured(format!("tls: the server has closed the connection{REFUSED}"))
    };
    explain(error).unwrap_or_else(closed)
}

/// Explains an error of an encrypted stream. None if it is not one of TLS.
fn explain(error: &io::Error) -> Option<ServerError> {
    use AlertDescription::{InternalError, ProtocolVersion, UnrecognisedName};
    use CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let advice = match error {
        Error::InvalidCertificate(UnknownIssuer) => {
            ": it is signed by an authority that is not trusted: see `RedisTls::ca_file`"
        }
        Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            ": see `RedisTls::server_name`"
        }
        Error::AlertReceived(InternalError | ProtocolVersion | UnrecognisedName) => "",
        Error::AlertReceived(_) => REFUSED,
        Error::InvalidMessage(_) => {
            ": the server does not speak TLS at this port: use its TLS port, or `redis://`"
        }
        _ => "",
    };
    Some(ServerError::misconfigured(format!("tls: {error}{advice}")))
}

/// What a server usually means that ends a connection after the handshake.
const REFUSED: &str = ": it may ask for a client certificate that it trusts: see `RedisTls::files`";
