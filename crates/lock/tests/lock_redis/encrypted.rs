//! Every lock in Redis keeps the contract of locks through TLS.

use bellwether_lock::redis::{RedisClientOptions, RedisTls};
use bellwether_lock::{RedisLock, conformance::Conformance};
use bellwether_testkit::servers::{Authority, RedisServer, chosen_server_lacks_tls};

use crate::world::options_of;

/// A server, and options that trust it.
fn encrypted() -> (RedisServer, RedisClientOptions) {
    let authority = Authority::new("ours");
    let server = RedisServer::start_tls(&authority.local());
    let tls = RedisTls::new(authority.client(None));
    let options = options_of(&server.tls_url()).tls(tls);
    (server, options)
}

#[tokio::test]
async fn redis_lock_keeps_the_contract_through_tls() {
    if chosen_server_lacks_tls() {
        return;
    }
    let (_server, options) = encrypted();
    let lock = RedisLock::connect(options).await.expect("a lock");
    assert_eq!(Conformance::of(lock).fenced().exclusive().take_over().run().await, []);
}
