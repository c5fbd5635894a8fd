//! Certificates of a test's own: authorities, and what they sign.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

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
