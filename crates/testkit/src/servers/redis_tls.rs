//! A Redis server that also listens by TLS.

use std::fs;

use super::certificates::{Authority, Identity};
use super::guarded::free_port;
use super::redis::RedisServer;
use super::resp2::Reply;

impl RedisServer {
    /// Starts a server that also listens by TLS, and asks clients for no certificate.
    pub fn start_tls(identity: &Identity) -> Self {
        let server = Self::start();
        server.listen_by_tls(identity, None);
        server
    }

    /// Listens by TLS as well, until the next [`restart`](Self::restart). With an authority, clients
    /// must present a certificate that it has signed.
    pub fn listen_by_tls(&self, identity: &Identity, clients: Option<&Authority>) {
        let asks = if clients.is_some() { "yes" } else { "no" };
        if let Some(clients) = clients {
            let path = self.file("clients.crt", &clients.pem());
            self.command(&["CONFIG", "SET", "tls-ca-cert-file", &path, "tls-auth-clients", asks]);
        } else {
            self.command(&["CONFIG", "SET", "tls-auth-clients", asks]);
        }
        self.present(identity);
        if self.tls_port() == 0 {
            self.command(&["CONFIG", "SET", "tls-port", &free_port().to_string()]);
        }
    }

    /// Presents another certificate to clients that connect from now on.
    pub fn present(&self, identity: &Identity) {
        let chain = self.file("server.crt", &identity.chain);
        let key = self.file("server.key", &identity.key);
        self.command(&["CONFIG", "SET", "tls-cert-file", &chain, "tls-key-file", &key]);
    }

    /// The port where it listens by TLS.
    pub fn tls_port(&self) -> u16 {
        let Reply::Array(mut pair) = self.command(&["CONFIG", "GET", "tls-port"]) else {
            panic!("the server tells no port")
        };
        let port = pair.pop().expect("a value").text();
        port.parse().expect("a port")
    }

    /// Its address by TLS, with the name `localhost`.
    pub fn tls_url(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}
