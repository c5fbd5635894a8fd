//! What errors of TLS mean, and what to do about them.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::super::connect_error::ConnectError;

/// Explains an error of an encrypted stream. None if it is not one of TLS.
pub(in super::super) fn explain(error: &io::Error) -> Option<ConnectError> {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, DecryptError, HandshakeFailure, UnknownCA, UnsupportedCertificate,
    };
    use CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let advice = match error {
        Error::InvalidCertificate(UnknownIssuer) => {
            ": it is signed by an authority that is not trusted: see `RedisTls::ca_file`"
        }
        Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            ": see `RedisTls::server_name`"
        }
        Error::AlertReceived(
            BadCertificate
            | CertificateExpired
            | CertificateRequired
            | CertificateRevoked
            | CertificateUnknown
            | DecryptError
            | HandshakeFailure
            | UnknownCA
            | UnsupportedCertificate,
        ) => REFUSED,
        Error::InvalidMessage(_) => {
            ": the server does not speak TLS at this port: use its TLS port, or `redis://`"
        }
        _ => "",
    };
    Some(ConnectError::misconfigured(format!("tls: {error}{advice}")))
}

/// What a server means that ends a connection after it has asked for a certificate.
pub(in super::super) const REFUSED: &str = ": the server asks for a client certificate that it trusts: see \
                                  `RedisTls::files`";
