//! PEM files: certificates and keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A file as it was read.
#[derive(Clone, PartialEq)]
pub(super) struct PemFile {
    path: PathBuf,
    text: Vec<u8>,
}

impl PemFile {
    /// It may block.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), text })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let certificates = certificates.map_err(|error| self.says(error))?;
        if certificates.is_empty() { Err(self.says("no certificate")) } else { Ok(certificates) }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|_| self.says("no private key"))
    }

    fn says(&self, what: impl fmt::Display) -> String {
        format!("{}: {what}", self.path.display())
    }
}

/// The configuration by files: of the authorities, if not those of the system, then of the certificate
/// chain and its key. It may block.
pub(super) fn config(files: &[PemFile]) -> Result<ClientConfig, String> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.with_root_certificates(match files.first() {
        Some(file) => authorities(file)?,
        None => system_authorities()?,
    });
    match files {
        [_, chain, key] => builder
            .with_client_auth_cert(chain.certificates()?, key.key()?)
            .map_err(|error| chain.says(error)),
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn authorities(file: &PemFile) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in file.certificates()? {
        roots.add(certificate).map_err(|error| file.says(error))?;
    }
    Ok(roots)
}

/// The authorities that this system trusts.
fn system_authorities() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a system may be malformed, and others still serve.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!("this system has no root certificates{why}: use `RedisTls::ca_file`"));
    }
    Ok(roots)
}
