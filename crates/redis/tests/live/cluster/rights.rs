//! A user with the documented rights on all nodes.

use bellwether::store::StoreErrorKind;
use bellwether_redis::RedisOptions;
use bellwether_test::conformance;
use bellwether_testkit::servers::RedisCluster;

use super::{fill, found, owned_by, slot};
use crate::catalog::{key, options_at};
use crate::server;

/// The rights that the guide asks for on a cluster.
fn all_rights() -> Vec<&'static str> {
    server::all_rights().into_iter().chain(["+cluster|slots", "+asking"]).collect()
}

/// Gives a user these rights and no others, on all nodes.
fn user(cluster: &RedisCluster, rights: &[&str]) -> RedisOptions {
    for node in cluster.nodes() {
        node.url_of_user(rights);
    }
    options_at(&cluster.url().replace("://", "://bw:secret@"))
}

#[tokio::test]
async fn a_user_with_the_documented_rights_can_do_everything_on_a_cluster() {
    let cluster = RedisCluster::start();
    let store = user(&cluster, &all_rights()).connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store.clone()).await, []);
    // A slot that is moving is asked for on the node that imports it.
    let sku = owned_by(&cluster, 0);
    fill(&store, sku, "moving").await;
    let slot = slot(&cluster, sku);
    cluster.begin_to_move(slot, 1);
    while cluster.move_names(slot, 1, 10) > 0 {}
    assert_eq!(found(&store, key(sku)).await.as_deref(), Some("moving"));
}

#[tokio::test]
async fn a_user_that_may_not_discover_the_slots_is_told_on_connecting() {
    let cluster = RedisCluster::start();
    let rights: Vec<_> = all_rights().into_iter().filter(|it| *it != "+cluster|slots").collect();
    let error = user(&cluster, &rights).connect().await.expect_err("it may not");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("NOPERM"), "{error}");
}
