//! The TLS connector: encrypts streams, and reads renewed files.

use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::{fmt, io};

use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::client::TlsStream;

use super::super::connect_error::ConnectError;
use super::explain::explain;
use super::identity::ClientIdentity;
use super::material::{authorities, identity, system_roots};
use super::options::RedisTls;
use super::unverified::Unverified;
use crate::log_throttle::warn_throttled;

/// Encrypts the streams of a client.
#[derive(Debug)]
pub(in super::super) struct TlsConnector {
    options: RedisTls,
    /// Held to read and replace it, never across an `.await`.
    current: Mutex<Option<TlsSettings>>,
    /// Whether it was logged that certificates are not verified.
    warned: Once,
}

/// The settings that connections share, with the sessions to resume.
#[derive(Clone, Debug)]
struct TlsSettings {
    config: Arc<ClientConfig>,
    identity: Arc<ClientIdentity>,
    /// What they were made from.
    pems: Pems,
}

/// The PEM texts of the authorities, of the certificate and of its key.
#[derive(Clone, PartialEq)]
struct Pems([Option<Arc<[u8]>>; 3]);

impl TlsConnector {
    pub(in super::super) fn new(options: RedisTls) -> Self {
        Self { options, current: Mutex::default(), warned: Once::new() }
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
        if self.options.is_unverified {
            self.warned.call_once(|| {
                tracing::warn!(target: "bellwether::store", host, "redis: any certificate is accepted");
            });
        }
        let settings = self.settings().await?;
        let name = match &self.options.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                ConnectError::misconfigured(format!("tls: `{host}` is no name for a certificate"))
            })?,
        };
        let connector = tokio_rustls::TlsConnector::from(settings.config);
        let encrypted = connector.connect(name, stream).await;
        encrypted.map_err(|error| explain(&error).unwrap_or_else(|| error.into()))
    }

    /// Explains why a server has closed an encrypted connection before its first reply.
    pub(in super::super) fn explain_end(&self) -> Option<ConnectError> {
        let was_asked = self.current().as_ref().is_some_and(|now| now.identity.was_asked());
        let explanation = match (was_asked, &self.options.identity) {
            (false, _) => return None,
            (true, None) => {
                "tls: the server asks for a client certificate, and there is none: use \
                             `RedisTls::client_files`"
            }
            (true, Some(_)) => {
                "tls: the server closed the connection after it was given the \
                                client certificate: it may not trust it"
            }
        };
        Some(ConnectError::misconfigured(explanation))
    }

    /// The settings of the files as they are now, or the last ones that could be used.
    async fn settings(&self) -> Result<TlsSettings, ConnectError> {
        let options = self.options.clone();
        let current = self.current().clone();
        // Files are read, and so may be the roots of the system.
        let renewed = spawn_blocking(move || renewed(&options, current)).await;
        match renewed.map_err(io::Error::other)? {
            Ok(settings) => {
                *self.current() = Some(settings.clone());
                Ok(settings)
            }
            Err(reason) => {
                let current = self.current().clone();
                let settings =
                    current.ok_or_else(|| ConnectError::misconfigured(format!("tls: {reason}")))?;
                warn_throttled!(target: "bellwether::store", reason, "renewed TLS files cannot be used: the former ones stay");
                Ok(settings)
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<TlsSettings>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of the files as they are now. Unchanged files keep their sessions.
fn renewed(options: &RedisTls, current: Option<TlsSettings>) -> Result<TlsSettings, String> {
    let pems = Pems::read(options)?;
    match current {
        Some(current) if current.pems == pems => Ok(current),
        _ => TlsSettings::new(options, pems),
    }
}

impl Pems {
    fn read(options: &RedisTls) -> Result<Self, String> {
        let [chain, key] = match &options.identity {
            Some([chain, key]) => [Some(chain), Some(key)],
            None => [None, None],
        };
        let [authorities, chain, key] = [options.authorities.as_ref(), chain, key]
            .map(|source| source.map(|source| source.read()).transpose());
        Ok(Self([authorities?, chain?, key?]))
    }
}

impl TlsSettings {
    fn new(options: &RedisTls, pems: Pems) -> Result<Self, String> {
        let Pems([authority, chain, key]) = &pems;
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let identity = match (chain, key) {
            (Some(chain), Some(key)) => {
                Some(certified(chain, key, &provider).map_err(named(&options.identity))?)
            }
            _ => None,
        };
        let identity = Arc::new(ClientIdentity::new(identity));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if options.is_unverified {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        } else {
            builder.with_root_certificates(match authority {
                Some(pem) => Arc::new(authorities(pem).map_err(named(&options.authorities))?),
                None => system_roots()?,
            })
        };
        let config = Arc::new(builder.with_client_cert_resolver(Arc::clone(&identity) as _));
        Ok(Self { config, identity, pems })
    }
}

fn certified(chain: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let (chain, key) = identity(chain, key)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| error.to_string())
}

/// Adds where a PEM text is from.
fn named<S: fmt::Debug, E: fmt::Display>(source: &Option<S>) -> impl Fn(E) -> String {
    move |error| match source {
        Some(source) => format!("{source:?}: {error}"),
        None => error.to_string(),
    }
}

/// It holds a private key.
impl fmt::Debug for Pems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pems")
    }
}
