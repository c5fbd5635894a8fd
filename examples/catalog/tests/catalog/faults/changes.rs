//! Changes that a database has recorded, and that cannot be applied: not yet, or never.

use bellwether_testkit::servers::RedisServer;

use super::{Alert, until_fired};
use crate::changes::Changes;
use crate::server::read;

pub(super) const ALERTS: &[Alert] =
    &[("BellwetherChangesWait", "public"), ("BellwetherChangesDead", "public")];

#[tokio::test]
async fn the_alerts_fire_when_recorded_changes_are_not_applied() {
    let mut redis = RedisServer::start();
    let changes = Changes::start(&redis).await;
    let url = format!("http://{}/metrics", changes.target);
    redis.kill();
    changes.record("product");
    until_fired(async || vec![read(&url).await], ALERTS, async |_| changes.record("unknown")).await;
}
