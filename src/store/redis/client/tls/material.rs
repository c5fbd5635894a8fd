//! Certificates and keys: where they are, and how they are read.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::{fmt, fs};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Where a PEM text is.
#[derive(Clone)]
pub(super) enum PemSource {
    File(PathBuf),
    Text(Arc<[u8]>),
}

/// A certificate chain and its private key.
pub(super) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl PemSource {
    pub(super) fn text(text: &[u8]) -> Self {
        Self::Text(text.into())
    }

    /// The text. It may block.
    pub(super) fn read(&self) -> Result<Arc<[u8]>, String> {
        match self {
            Self::File(path) => {
                let read = fs::read(path);
                read.map(Into::into).map_err(|error| format!("{}: {error}", path.display()))
            }
            Self::Text(text) => Ok(Arc::clone(text)),
        }
    }
}

/// The authorities in a PEM text.
pub(super) fn authorities(pem: &[u8]) -> Result<RootCertStore, &'static str> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|_| "a certificate of an authority is invalid")?;
    }
    Ok(roots)
}

/// The identity in two PEM texts.
pub(super) fn identity(chain: &[u8], key: &[u8]) -> Result<Identity, &'static str> {
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| "there is no private key in the PEM text for the client")?;
    Ok((certificates(chain)?, key))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|_| "a PEM text is malformed")?;
    if certificates.is_empty() {
        return Err("there is no certificate in a PEM text");
    }
    Ok(certificates)
}

/// The roots that this system trusts, read once. It may block.
pub(super) fn system_roots() -> Result<Arc<RootCertStore>, String> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(Arc::clone(roots));
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some certificates of a system may be malformed, and others still serve.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!("this system has no root certificates{why}: use `RedisTls::ca_file`"));
    }
    Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(roots))))
}

/// A text may be a private key.
impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Text(_) => f.write_str("given as a text"),
        }
    }
}
