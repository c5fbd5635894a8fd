//! Changes that a database has recorded, and that cannot be applied: not yet, or never.

use bellwether_testkit::servers::{PrometheusServer, RedisServer};

use super::{Alert, hasty_rules, until_fired};
use crate::changes::Changes;

pub(super) const ALERTS: &[Alert] =
    &[("BellwetherChangesWait", "public"), ("BellwetherChangesDead", "public")];

#[tokio::test]
async fn the_alerts_fire_when_recorded_changes_are_not_applied() {
    let mut redis = RedisServer::start();
    let changes = Changes::start(&redis).await;
    let prometheus = PrometheusServer::start(&[&changes.target], &hasty_rules());
    redis.kill();
    changes.record("product");
    until_fired(&prometheus, ALERTS, async |_| changes.record("unknown")).await;
}
