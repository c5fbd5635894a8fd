//! A TLS terminator in front of a server that speaks plain text.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};

use super::certificates::Identity;

/// Passes what clients send by TLS on to a server, and counts what servers do not tell.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    resumed: AtomicUsize,
}

impl TlsFront {
    /// Listens on a port of its own.
    pub async fn start(upstream: SocketAddr, identity: &Identity) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let counts = Arc::<Counts>::default();
        let acceptor = acceptor(identity);
        let counted = Arc::clone(&counts);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, acceptor.clone(), upstream, Arc::clone(&counted)));
            }
        });
        Self { port, counts, task }
    }

    /// Its address, with the name `localhost`.
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }

    /// How many connections were opened, with or without success.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// How many handshakes resumed a session.
    pub fn resumed(&self) -> usize {
        self.counts.resumed.load(Ordering::Relaxed)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    client: TcpStream,
    acceptor: TlsAcceptor,
    upstream: SocketAddr,
    counts: Arc<Counts>,
) {
    counts.connections.fetch_add(1, Ordering::Relaxed);
    let Ok(mut client) = acceptor.accept(client).await else { return };
    if client.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
        counts.resumed.fetch_add(1, Ordering::Relaxed);
    }
    let mut server = TcpStream::connect(upstream).await.expect("the server");
    // Either may end the connection.
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

fn acceptor(identity: &Identity) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes());
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    TlsAcceptor::from(Arc::new(config))
}
