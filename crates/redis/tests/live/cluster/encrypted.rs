//! A cluster by TLS.

use std::fs;
use std::path::Path;

use bellwether_redis::{RedisOptions, RedisTls};
use bellwether_test::conformance;
use bellwether_testkit::servers::{
    Authority, RedisServer, chosen_server_lacks_tls, free_cluster_port,
};
use bellwether_testkit::wait::within;

use super::MINUTE;
use crate::catalog::options_at;

/// A node with all slots, which announces its name, and the ports of TLS to clients by TLS.
#[tokio::test]
async fn redis_store_keeps_the_contract_on_a_cluster_through_tls() {
    if chosen_server_lacks_tls() {
        return;
    }
    let authority = Authority::new("ours");
    let identity = authority.local();
    let port = free_cluster_port().to_string();
    let file = |name: &str, text: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{port}-{name}"));
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let [chain, key, ca] = [
        file("server.crt", &identity.chain),
        file("server.key", &identity.key),
        file("ca.crt", &authority.pem()),
    ];
    let certificates = ["--tls-cert-file", &chain, "--tls-key-file", &key];
    let encrypted = ["--tls-port", &port, "--tls-cluster", "yes", "--tls-auth-clients", "no"];
    let announced = ["--cluster-announce-hostname", "localhost"];
    let preferred = ["--cluster-preferred-endpoint-type", "hostname"];
    let cluster = ["--cluster-enabled", "yes", "--tls-ca-cert-file", &ca];
    let options = [&cluster[..], &certificates, &encrypted, &announced, &preferred].concat();
    let server = RedisServer::start_with(&options);
    server.own_all_slots();
    let is_whole = || server.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok");
    within(MINUTE, is_whole).await;
    let tls = RedisTls::new(authority.client(None));
    let url = format!("rediss-cluster://localhost:{port}");
    let options: RedisOptions = options_at(&url).tls(tls);
    let store = options.connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}
