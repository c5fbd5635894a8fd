//! TLS: which servers a client trusts, and which errors are about that.

use std::error::Error;
use std::path::Path;
use std::{io, iter};

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::spawn_blocking;

use crate::{LockError, LockErrorKind};

type Certificates = Vec<CertificateDer<'static>>;

/// The certificates of the authorities that a client trusts: those in a PEM file, or those of this
/// system. They are read for each connection, so a renewed file needs no restart.
pub(crate) async fn authorities(file: Option<&Path>) -> Result<Certificates, LockError> {
    let file = file.map(Path::to_owned);
    let found = spawn_blocking(move || read(file.as_deref())).await;
    let found = found.unwrap_or_else(|error| Err(error.to_string()));
    found.map_err(untrusted)
}

/// It may block.
fn read(file: Option<&Path>) -> Result<Certificates, String> {
    let mut certificates: Certificates = match file {
        Some(file) => {
            let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
            found.map_err(|error| format!("{}: {error}", file.display()))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    // Some certificates of a system may be malformed, and others still serve.
    let mut roots = RootCertStore::empty();
    certificates.retain(|certificate| roots.add(certificate.clone()).is_ok());
    if certificates.is_empty() { Err("there is no authority".into()) } else { Ok(certificates) }
}

/// For a driver that uses the default cryptography of the process, and panics if there is none and the
/// program was built with several.
#[cfg(feature = "mysql")]
pub(crate) fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread was first.
        _ = ring::default_provider().install_default();
    }
}

/// Of a client that trusts these authorities.
#[cfg(feature = "postgres")]
pub(crate) fn client_config(trusted: Certificates) -> Result<rustls::ClientConfig, LockError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted);
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| ring::default_provider().into());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions();
    let config = config.map_err(|error| untrusted(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Whether TLS failed: another try does not mend that.
pub(crate) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(|error| {
        let inner = error.downcast_ref().and_then(io::Error::get_ref);
        error.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>())
    })
}

/// The server cannot be trusted, or speaks no TLS.
pub(crate) fn untrusted(reason: impl Into<String>) -> LockError {
    let message = format!("tls: {} (trusted authorities: `ca_file`)", reason.into());
    LockError::new(LockErrorKind::Misconfigured, message)
}
