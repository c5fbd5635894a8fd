//! Redis by TLS: the contract, what certificates are accepted, and what their errors say.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bellwether::ConfigError;
use bellwether::store::StoreErrorKind;
use bellwether_redis::{RedisOptions, RedisTls};
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::servers::{
    Authority, Identity, RedisServer, SERVICE, TlsFront, Validity, chosen_server_lacks_tls,
    free_port,
};

use crate::catalog::{Catalog, key, options_at};

/// Options for a server by TLS that trust this authority.
fn trusting(url: &str, authority: &Authority) -> RedisOptions {
    options_at(url).tls(trust(authority))
}

fn trust(authority: &Authority) -> RedisTls {
    RedisTls::new(authority.client(None))
}

fn with_identity(authority: &Authority, identity: &Identity) -> RedisTls {
    RedisTls::new(authority.client(Some(identity)))
}

/// What connecting says, if the server or the client does not accept the other.
async fn misfit(options: RedisOptions) -> String {
    let error = options.connect().await.expect_err("it does not fit");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    error.to_string()
}

#[tokio::test]
async fn redis_store_keeps_the_contract_through_tls_with_a_near_cache() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    let server = RedisServer::start_tls(&authority.local());
    let near = trusting(&server.tls_url(), &authority).near(1 << 20);
    let store = near.connect().await.expect("a store");
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_named() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    let server = RedisServer::start_tls(&authority.local());
    let foreign = Authority::new("another");
    let said = misfit(trusting(&server.tls_url(), &foreign)).await;
    assert!(said.contains("an authority that is not trusted"), "{said}");
    // The system does not trust it either.
    let said = misfit(options_at(&server.tls_url())).await;
    assert!(said.contains("not trusted") || said.contains("no root certificates"), "{said}");
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_now_is_named() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    for (validity, words) in
        [(Validity::Past, "certificate expired"), (Validity::Future, "not valid yet")]
    {
        let server = RedisServer::start_tls(&authority.sign(&["localhost"], validity));
        let said = misfit(trusting(&server.tls_url(), &authority)).await;
        assert!(said.contains(words), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_host_is_named_with_both_names() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    let server = RedisServer::start_tls(&authority.sign(&["other.example"], Validity::Now));
    let said = misfit(trusting(&server.tls_url(), &authority)).await;
    assert!(said.contains("\"other.example\"") && said.contains("\"localhost\""), "{said}");
    let by_address = format!("rediss://127.0.0.1:{}", server.tls_port());
    let said = misfit(trusting(&by_address, &authority)).await;
    assert!(said.contains("other.example") && said.contains("\"127.0.0.1\""), "{said}");
    let named = trust(&authority).server_name("other.example");
    let options = options_at(&by_address).tls(named);
    options.connect().await.expect("the name that the certificate is for");
}

#[tokio::test]
async fn a_client_certificate_that_is_missing_foreign_or_expired_is_named() {
    if chosen_server_lacks_tls() {
        return;
    }
    let [ours, clients, foreign] = ["ours", "clients", "another"].map(Authority::new);
    let server = RedisServer::start();
    server.listen_by_tls(&ours.local(), Some(&clients));
    let url = server.tls_url();
    let with = |identity: &Identity| options_at(&url).tls(with_identity(&ours, identity));
    with(&clients.local()).connect().await.expect("a certificate that the server trusts");
    let said = misfit(trusting(&url, &ours)).await;
    assert!(said.contains("client certificate") && said.contains("RedisTls::files"), "{said}");
    for identity in [foreign.local(), clients.sign(&["client"], Validity::Past)] {
        let said = misfit(with(&identity)).await;
        assert!(said.contains("client certificate"), "{said}");
    }
}

#[tokio::test]
async fn plain_text_to_a_port_of_tls_is_named() {
    if chosen_server_lacks_tls() {
        return;
    }
    let server = RedisServer::start_tls(&Authority::new("ours").local());
    let url = format!("redis://localhost:{}", server.tls_port());
    let error = options_at(&url).connect().await.expect_err("it expects TLS");
    // The server may also close the connection without a word.
    let is_closed = error.kind() == StoreErrorKind::Unreachable;
    assert!(is_closed || error.to_string().contains("rediss://"), "{error}");
}

#[tokio::test]
async fn tls_to_a_port_of_plain_text_is_named() {
    let server = RedisServer::start();
    let url = format!("rediss://localhost:{}", server.port());
    let short = options_at(&url).connect_timeout(Duration::from_millis(500));
    let error = short.tls(trust(&Authority::new("ours")));
    let error = error.connect().await.expect_err("it speaks plain text");
    // The server waits for the end of a line, if there is none in the handshake.
    let is_late = error.kind() == StoreErrorKind::TimedOut;
    assert!(is_late || error.to_string().contains("does not speak TLS"), "{error}");
}

#[tokio::test]
async fn each_connection_checks_the_certificate() {
    let authority = Authority::new("ours");
    let server = RedisServer::start();
    let upstream = ([127, 0, 0, 1], server.port()).into();
    let front = TlsFront::start(upstream, &authority.local()).await;
    let file = server.dir().join("ca.crt");
    fs::write(&file, authority.pem()).expect("a file");
    for tls in [trust(&authority), RedisTls::ca_file(file)] {
        let options = options_at(&front.url()).tls(tls);
        let store = options.connect().await.expect("a store");
        let before = front.connections();
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        store.find(key(1)).await.expect("an answer over another connection");
        assert!(front.connections() > before);
        assert_eq!(front.resumed(), 0, "of {}", front.connections());
    }
}

#[tokio::test]
async fn a_certificate_that_the_server_renews_needs_no_restart() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    let server = RedisServer::start_tls(&authority.local());
    let store = trusting(&server.tls_url(), &authority).connect().await.expect("a store");
    let catalog = Catalog::over(store);
    catalog.ask(1).await;
    server.present(&authority.local());
    catalog.ask(2).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    catalog.ask(1).await;
    assert_eq!(catalog.loads(), 2, "no entry was lost");
}

#[tokio::test]
async fn sentinels_and_the_primary_that_they_name_are_reached_by_tls() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    let primary = RedisServer::start_tls(&authority.local());
    let file = |name| primary.dir().join(name).display().to_string();
    fs::write(file("ca.crt"), authority.pem()).expect("a file");
    let port = free_port();
    let lines = [
        format!("tls-port {port}"),
        format!("tls-cert-file {}", file("server.crt")),
        format!("tls-key-file {}", file("server.key")),
        format!("tls-ca-cert-file {}", file("ca.crt")),
        "tls-auth-clients no".to_owned(),
        "tls-replication yes".to_owned(),
        format!("sentinel monitor {SERVICE} 127.0.0.1 {} 1", primary.tls_port()),
    ];
    let _sentinel = RedisServer::start_sentinel(&lines.each_ref().map(String::as_str));
    let url = format!("rediss+sentinel://localhost:{port}/{SERVICE}");
    let catalog = Catalog::over(trusting(&url, &authority).connect().await.expect("a store"));
    catalog.ask(1).await;
    catalog.ask(1).await;
    assert_eq!(catalog.loads(), 1);
    let said = misfit(trusting(&url, &Authority::new("another"))).await;
    assert!(said.contains("not trusted"), "{said}");
}

/// Files of a client, in the directory of a server.
struct Files([PathBuf; 3]);

impl Files {
    fn of(server: &RedisServer) -> Self {
        Self(["ca.crt", "client.crt", "client.key"].map(|name| server.dir().join(name)))
    }

    fn write(&self, texts: [&str; 3]) {
        for (path, text) in self.0.iter().zip(texts) {
            fs::write(path, text).expect("a file");
        }
    }

    fn tls(&self) -> RedisTls {
        RedisTls::files(&self.0[0], &self.0[1], &self.0[2])
    }
}

#[tokio::test]
async fn files_that_are_renewed_need_no_restart_and_may_be_renewed_one_by_one() {
    if chosen_server_lacks_tls() {
        return;
    }
    let [old, new] = ["old", "new"].map(Authority::new);
    let server = RedisServer::start();
    server.listen_by_tls(&old.local(), Some(&old));
    let files = Files::of(&server);
    let [first, second] = [old.local(), new.local()];
    files.write([&old.pem(), &first.chain, &first.key]);
    let options = options_at(&server.tls_url()).tls(files.tls());
    let catalog = Catalog::over(options.connect().await.expect("a store"));
    catalog.ask(1).await;
    // A certificate without its key: the former ones stay.
    files.write([&old.pem(), &second.chain, &first.key]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    catalog.ask(1).await;
    assert_eq!(catalog.loads(), 1);
    files.write([&new.pem(), &second.chain, &second.key]);
    server.listen_by_tls(&new.local(), Some(&new));
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    catalog.ask(1).await;
    assert_eq!(catalog.loads(), 1);
}

#[tokio::test]
async fn a_file_that_is_missing_or_holds_no_certificate_is_named() {
    if chosen_server_lacks_tls() {
        return;
    }
    let server = RedisServer::start_tls(&Authority::new("ours").local());
    let missing = RedisTls::ca_file("/nowhere/ca.crt");
    let said = misfit(options_at(&server.tls_url()).tls(missing)).await;
    assert!(said.contains("/nowhere/ca.crt"), "{said}");
    let path = server.dir().join("ca.crt");
    fs::write(&path, "no certificate").expect("a file");
    let empty = RedisTls::ca_file(&path);
    let said = misfit(options_at(&server.tls_url()).tls(empty)).await;
    assert!(said.contains("ca.crt") && said.contains("no certificate"), "{said}");
}

#[test]
fn names_of_no_server_and_addresses_without_tls_are_refused_at_once() {
    let tls = RedisTls::default;
    let refused = |url, tls| options_at(url).tls(tls).connect_lazily().err();
    let named = tls().server_name("no name");
    assert!(matches!(refused("rediss://h", named), Some(ConfigError::Tls { .. })));
    assert!(matches!(refused("redis://h", tls()), Some(ConfigError::Tls { .. })));
}

#[test]
fn a_private_key_is_shown_nowhere() {
    let authority = Authority::new("ours");
    let identity = authority.local();
    let tls = with_identity(&authority, &identity);
    let options = options_at("rediss://user:hunter2@h").tls(tls.clone());
    let shown =
        format!("{tls:?} {options:?} {:?}", options.clone().connect_lazily().expect("options"));
    let secret = identity.key.lines().nth(1).expect("a line of the key");
    assert!(!shown.contains(secret) && !shown.contains("hunter2"), "{shown}");
}
