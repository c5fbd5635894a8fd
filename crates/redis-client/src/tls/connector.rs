//! The TLS connector: encrypts streams, and reads renewed files.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::client::TlsStream;

use super::super::connect_error::ConnectError;
use super::RedisTls;
use super::explain::{REFUSED, explain};
use super::pem_file::{self, PemFile};
use bellwether::warn_throttled;

/// Encrypts the streams of a client.
pub(in super::super) struct TlsConnector {
    tls: RedisTls,
    /// The files that were used last, and the configuration by them, with the sessions to resume.
    /// Held to read and replace it, never across an `.await`.
    current: Mutex<Option<(Vec<PemFile>, Arc<ClientConfig>)>>,
    /// Whether a server has asked for a certificate.
    was_asked: Arc<AtomicBool>,
}

/// Notes that a server asks for a certificate.
///
/// With TLS 1.3, a server refuses a certificate after the handshake, and may close the connection
/// before its reason has been read. Then this is what is known about the cause.
#[derive(Debug)]
struct NotedRequests {
    certificates: Arc<dyn ResolvesClientCert>,
    was_asked: Arc<AtomicBool>,
}

impl TlsConnector {
    pub(in super::super) fn new(tls: RedisTls) -> Self {
        let was_asked = Arc::default();
        let config = tls.config.as_ref().map(|config| noted(config, &was_asked));
        let current = Mutex::new(config.map(|config| (Vec::new(), config)));
        Self { tls, current, was_asked }
    }

    /// Encrypts a stream to a host.
    ///
    /// # Errors
    /// Certificate errors are [`ConnectError::Misconfigured`].
    pub(in super::super) async fn encrypt(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, ConnectError> {
        let config = self.config().await?;
        let name = match &self.tls.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                ConnectError::misconfigured(format!("tls: `{host}` is no name for a certificate"))
            })?,
        };
        let encrypted = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
        encrypted.map_err(|error| explain(&error).unwrap_or_else(|| error.into()))
    }

    /// Explains why a server has closed an encrypted connection before its first reply.
    pub(in super::super) fn explain_end(&self) -> Option<ConnectError> {
        let message = format!("tls: the server has closed the connection{REFUSED}");
        self.was_asked.load(Ordering::Relaxed).then(|| ConnectError::misconfigured(message))
    }

    /// That of the files as they are now, or the last one that could be used.
    async fn config(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        let (paths, current) = (self.tls.files.clone(), self.current().clone());
        let (known, was_asked) = (current.clone(), Arc::clone(&self.was_asked));
        // Files are read, and so may be those of the system.
        let renewed = spawn_blocking(move || {
            let files =
                paths.iter().map(|path| PemFile::read(path)).collect::<Result<Vec<_>, _>>()?;
            match known {
                Some((known, config)) if known == files => Ok((known, config)),
                _ => pem_file::config(&files).map(|config| (files, noted(&config, &was_asked))),
            }
        });
        match (renewed.await.map_err(io::Error::other)?, current) {
            (Ok(renewed), _) => Ok(Arc::clone(&self.current().insert(renewed).1)),
            (Err(reason), Some((_, config))) => {
                warn_throttled!(target: "bellwether::store", reason, "renewed TLS files cannot be used: the former ones stay");
                Ok(config)
            }
            (Err(reason), None) => Err(ConnectError::misconfigured(format!("tls: {reason}"))),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<(Vec<PemFile>, Arc<ClientConfig>)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A configuration that notes whether a server asks for a certificate.
fn noted(config: &ClientConfig, was_asked: &Arc<AtomicBool>) -> Arc<ClientConfig> {
    let certificates = Arc::clone(&config.client_auth_cert_resolver);
    let noted = NotedRequests { certificates, was_asked: Arc::clone(was_asked) };
    let mut config = config.clone();
    config.client_auth_cert_resolver = Arc::new(noted);
    Arc::new(config)
}

impl ResolvesClientCert for NotedRequests {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_asked.store(true, Ordering::Relaxed);
        self.certificates.resolve(issuers, schemes)
    }

    /// Always true, so that it is asked also without a certificate.
    fn has_certs(&self) -> bool {
        true
    }
}
