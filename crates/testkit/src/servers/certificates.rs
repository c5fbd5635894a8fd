//! Certificates of a test's own: authorities, and what they sign.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority that signs certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, as PEM texts. Servers and clients can present it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub chain: String,
    /// Its private key.
    pub key: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Now, and for a long time.
    Now,
    /// It has expired.
    Past,
    /// It is not valid yet.
    Future,
}

impl Authority {
    /// An authority with this name.
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("its own certificate"))
    }

    /// Its certificate, as a PEM text.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The configuration of a client that trusts it alone, and presents an identity.
    pub fn client(&self, identity: Option<&Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = builder.with_root_certificates(roots);
        let Some(Identity { chain, key }) = identity else { return builder.with_no_client_auth() };
        let chain = CertificateDer::from_pem_slice(chain.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        builder.with_client_auth_cert(vec![chain], key).expect("an identity")
    }

    /// An identity for `localhost` and 127.0.0.1.
    pub fn local(&self) -> Identity {
        self.sign(&["localhost", "127.0.0.1"], Validity::Now)
    }

    /// An identity for these names.
    pub fn sign(&self, names: &[&str], validity: Validity) -> Identity {
        let mut params = params("test", names);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let (from, until) = match validity {
            Validity::Now => (2020, 2120),
            Validity::Past => (2020, 2021),
            Validity::Future => (2120, 2121),
        };
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Identity { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
