//! What `inspect` says of the changes that a database has recorded of a key.

use bellwether_sql::Migrations;
use bellwether_testkit::servers::{MariaDbServer, PostgresServer};
use serde_json::Value;
use sqlx::{MySql, Postgres};

use crate::place::{Place, fill, item};

const ROWS: &str =
    "INSERT INTO bellwether_changes (target, name, parts, made_at, applied_at, failure) VALUES
    ('key', 'item', '[1, \"a\"]', now() - interval '60' second, NULL, NULL),
    ('key', 'item', '[1, \"a\"]', now() - interval '40' second, NULL, NULL),
    ('key', 'item', '[1, \"a\"]', now() - interval '90' second, now() - interval '80' second, NULL),
    ('key', 'item', '[1, \"a\"]', now(), NULL, 'no follower has this cache'),
    ('key', 'item', '[\"1\", \"a\"]', now(), NULL, NULL),
    ('key', 'price', '[1, \"a\"]', now(), NULL, NULL),
    ('tag', 'item', '[1, \"a\"]', now(), NULL, NULL)";

/// Whether this is a time of so many seconds, or of a few more.
fn is_about(millis: &Value, seconds: u64) -> bool {
    let millis = millis.as_u64().unwrap_or_else(|| panic!("no time: {millis}"));
    (seconds * 1_000..(seconds + 15) * 1_000).contains(&millis)
}

#[tokio::test]
async fn inspect_counts_the_rows_of_a_key_in_each_database() {
    let (place, postgres, mariadb) =
        (Place::single(), PostgresServer::start(), MariaDbServer::start());
    postgres.command(Migrations::<Postgres>::SQL);
    postgres.command(ROWS);
    mariadb.command(&format!("USE test; {}", Migrations::<MySql>::SQL));
    mariadb.command(&format!("USE test; {ROWS}"));
    for url in [postgres.url(), mariadb.url()] {
        let shown = place.run(&["inspect", "item@2", "1", "a", "--database", &url]).await;
        let counts = ["pending", "applied", "failed"].map(|it| &shown[format!("changes_{it}")]);
        assert_eq!(counts, [2, 1, 1], "{url}: {shown}");
        assert!(is_about(&shown["oldest_pending_ago_ms"], 60), "{shown}");
        assert!(is_about(&shown["last_applied_ago_ms"], 80), "{shown}");
        assert_eq!(shown["change_failure"], "no follower has this cache");
        let shown = place.run(&["inspect", "item", "2", "--database", &url]).await;
        assert_eq!(shown["changes_pending"], 0, "{shown}");
        assert!(shown["oldest_pending_ago_ms"].is_null(), "{shown}");
    }
}

#[tokio::test]
async fn inspect_goes_on_without_the_table() {
    let (place, postgres) = (Place::single(), PostgresServer::start());
    fill(&place.store().await, item(1), &[]).await;
    let shown = place.run(&["inspect", "item", "1", "--database", &postgres.url()]).await;
    assert_eq!(shown["entry"], "fresh", "{shown}");
    assert!(shown["changes"].to_string().contains("bellwether_caches"), "{shown}");
}
