//! A Redis server that also listens by TLS.

use std::fs;
use std::process::Command;

use super::certificates::{Authority, Identity};
use super::guarded::free_port;
use super::redis::{RedisServer, chosen};
use super::resp2::Reply;

/// Whether the server that `BELLWETHER_REDIS_SERVER` names was built without TLS: then a test of TLS
/// has nothing to test, and this says so on standard error. A server that was not chosen by name has
/// to have TLS.
pub fn chosen_server_lacks_tls() -> bool {
    let Some(server) = chosen() else { return false };
    // One with TLS misses a certificate, and ends as well.
    let options = ["--port", "0", "--tls-port", "1", "--save", "", "--daemonize", "no"];
    let output = Command::new(&server).args(options).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", server.display()));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lacks = LACKS_TLS.iter().any(|lack| said.contains(lack));
    if lacks {
        eprintln!("nothing is tested: {} was built without TLS", server.display());
    }
    lacks
}

/// What a server without TLS says, until Redis 6.2 and since.
const LACKS_TLS: [&str; 2] = ["Bad directive", "Failed finding TLS support"];

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
