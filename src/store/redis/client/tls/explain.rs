//! What errors of TLS mean, and what to do about them.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::super::connect_error::ConnectError;

/// Explains an error of an encrypted stream. None if it is not one of TLS.
pub(in super::super) fn explain(error: &io::Error) -> Option<ConnectError> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(ConnectError::misconfigured(format!("tls: {}", explanation(error))))
}

fn explanation(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => refusal(*alert),
        Error::InvalidMessage(_) => {
            "the server does not speak TLS at this port: use its TLS port, or `redis://`".to_owned()
        }
        other => other.to_string(),
    }
}

/// What is wrong with the certificate of the server.
fn certificate(error: &CertificateError) -> String {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let wrong = match error {
        Expired | ExpiredContext { .. } => "has expired",
        NotValidYet | NotValidYetContext { .. } => "is not valid yet: compare the clocks",
        UnknownIssuer => {
            "is signed by an authority that is not trusted: `RedisTls::ca_file` adds one"
        }
        NotValidForName => "is for another name: see `RedisTls::server_name`",
        NotValidForNameContext { expected, presented } => {
            // Each is the name of a variant, with the name of the host in quotes.
            let names = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name));
            return format!(
                "the certificate of the server is for `{}`, and not for `{}`: see \
                 `RedisTls::server_name`",
                names.collect::<Vec<_>>().join("`, `"),
                expected.to_str()
            );
        }
        other => return format!("the certificate of the server is invalid: {other}"),
    };
    format!("the certificate of the server {wrong}")
}

/// What the server says about the certificate of the client.
fn refusal(alert: AlertDescription) -> String {
    use AlertDescription::{
        BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, DecryptError, HandshakeFailure, ProtocolVersion, UnknownCA,
        UnsupportedCertificate,
    };
    let refused = match alert {
        CertificateRequired => "asks for a client certificate: use `RedisTls::client_files`",
        CertificateExpired => "refuses the client certificate: it has expired",
        CertificateRevoked => "refuses the client certificate: it was revoked",
        UnknownCA => "refuses the client certificate: it does not trust the authority",
        BadCertificate | CertificateUnknown | UnsupportedCertificate | DecryptError => {
            "refuses the client certificate, or asks for one that is not given"
        }
        HandshakeFailure | ProtocolVersion => {
            "refuses the handshake: it and this client have no version or cipher in common, or it \
             asks for a client certificate"
        }
        other => return format!("the server ends the connection: {other:?}"),
    };
    format!("the server {refused}")
}
