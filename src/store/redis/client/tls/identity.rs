//! What the client presents to servers that ask for a certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

/// The certificate of the client, if there is one. It notes whether a server has asked for it.
///
/// With TLS 1.3, a server refuses a certificate after the handshake, and may close the connection
/// before its reason has been read. Then this is what is known about the cause.
#[derive(Debug)]
pub(super) struct ClientIdentity {
    key: Option<Arc<CertifiedKey>>,
    was_asked: AtomicBool,
}

impl ClientIdentity {
    pub(super) fn new(key: Option<CertifiedKey>) -> Self {
        Self { key: key.map(Arc::new), was_asked: AtomicBool::new(false) }
    }

    /// Whether a server has asked for a certificate.
    pub(super) fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_asked.store(true, Ordering::Relaxed);
        self.key.clone()
    }

    /// Always true, so that it is asked also without a certificate.
    fn has_certs(&self) -> bool {
        true
    }
}
