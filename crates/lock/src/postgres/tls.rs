//! TLS for the driver.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use super::PostgresOptions;
use crate::session::{SessionError, authorities, untrusted};

/// Encrypts connections, if the address asks for that. Otherwise the driver does not use it.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    pub(super) async fn of(options: &PostgresOptions) -> Result<Self, SessionError> {
        let mut roots = RootCertStore::empty();
        if options.is_encrypted {
            roots.add_parsable_certificates(authorities(options.ca_file.as_deref()).await?);
        }
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| untrusted(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config).into()))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = EncryptedSocket;
    type TlsConnect = TlsOfHost;
    type Error = Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsOfHost, Infallible> {
        Ok(TlsOfHost { connector: self.0.clone(), host: host.to_owned() })
    }
}

/// Encrypts connections to a host.
pub(super) struct TlsOfHost {
    connector: TlsConnector,
    host: String,
}

impl TlsConnect<Socket> for TlsOfHost {
    type Stream = EncryptedSocket;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<EncryptedSocket>>;

    fn connect(self, socket: Socket) -> Self::Future {
        async move {
            let host = ServerName::try_from(self.host).map_err(io::Error::other)?;
            self.connector.connect(host, socket).await.map(EncryptedSocket)
        }
        .boxed()
    }
}

/// A socket with TLS.
pub(super) struct EncryptedSocket(client::TlsStream<Socket>);

impl TlsStream for EncryptedSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
    }
}

impl AsyncWrite for EncryptedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}
