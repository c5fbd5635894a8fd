//! A key that was made in SQL is the key that a program makes of the same value.

use std::convert::Infallible;
use std::time::Duration;

use bellwether::{Cache, CacheKey};
use bellwether_sql::ChangeLog;
use bellwether_testkit::wait::PATIENCE;
use tokio::time::timeout;
use uuid::Uuid;

use crate::place::Place;

const UUID: &str = "5f0c7127-39ad-4a7c-8e0b-0cd4b1a7e0c3";

/// Checks that a row of this key, made in SQL, invalidates the value of this key of a program; and that one which the
/// program records in its own transaction says the same.
async fn same<K: CacheKey + Clone>(place: &Place, key: K, sql: &str) {
    let hour = Duration::from_secs(3_600);
    let cache: Cache<K, i64> =
        Cache::builder("part", place.store.clone()).ttl(hour).build().expect("options");
    cache.get_or_load(key.clone(), async || Ok::<_, Infallible>(1)).await.expect("a value");
    place.run(&format!("SELECT bellwether_invalidate('part', {sql})")).await;
    place.applied().await;
    assert_eq!(cache.get(key.clone()).await.expect("the store"), None, "{sql}");

    let mut transaction = place.pool.begin().await.expect("a transaction");
    let changes = ChangeLog::new(place.pool.clone());
    changes.invalidate(&mut transaction, &cache, key).await.expect("a row");
    transaction.commit().await.expect("a commit");
    let forms = "SELECT count(DISTINCT parts) FROM (SELECT parts FROM bellwether_changes ORDER BY id DESC LIMIT 2) AS two";
    assert_eq!(place.value(forms).await, 1, "{sql}");
}

#[tokio::test]
async fn a_key_made_in_sql_is_the_key_made_in_rust() {
    let place = Place::start().await;
    let follower = place.follower().kind("part", "part").start().await.expect("a follower");
    same(&place, 42_i64, "42").await;
    same(&place, 42_u8, "42::smallint").await;
    same(&place, -7_i64, "-7::bigint").await;
    same(&place, i64::MIN, "-9223372036854775808").await;
    same(&place, u64::MAX, "18446744073709551615").await;
    same(&place, i128::from(u64::MAX) + 1, "18446744073709551616").await;
    same(&place, i128::MIN, "-170141183460469231731687303715884105728").await;
    same(&place, u128::MAX, "340282366920938463463374607431768211455").await;
    same(&place, 42_i64, "42.00").await;
    same(&place, "42".to_owned(), "'42'").await;
    same(&place, String::new(), "''").await;
    same(&place, "lämp 💡 \\u0041 \"".to_owned(), "'lämp 💡 \\u0041 \"'::varchar").await;
    same(&place, "ab   ".to_owned(), "bellwether_part('ab'::char(5))").await;
    same(&place, 'x', "'x'").await;
    same(&place, true, "true").await;
    same(&place, false, "false").await;
    same(&place, Uuid::parse_str(UUID).expect("a UUID"), &format!("'{UUID}'::uuid")).await;
    same(&place, UUID.to_owned(), &format!("'{UUID}'")).await;
    same(&place, vec![0_u8, 0xff], r"'\x00ff'::bytea").await;
    same(&place, None::<i64>, "NULL::bigint").await;
    same(&place, Some(42_i64), "jsonb_build_object('some', 42)").await;
    same(&place, (), "'[]'::jsonb").await;
    same(&place, vec!["a".to_owned()], "jsonb_build_array(jsonb_build_object('list', 1), 'a')")
        .await;
    same(&place, ("berlin".to_owned(), 42_i64), "jsonb_build_array('berlin', 42)").await;
    let mixed =
        "jsonb_build_array(1.0, bellwether_part('\\x01'::bytea), NULL, true, 18446744073709551616)";
    same(&place, (1_i64, vec![1_u8], None::<i64>, true, 1_i128 << 64), mixed).await;
    follower.shutdown().await;
}

#[tokio::test]
async fn a_value_that_is_no_part_of_a_key_is_an_error_that_names_its_type() {
    let place = Place::start().await;
    for (value, named) in [
        ("now()", "type timestamp with time zone"),
        ("1.5::float8", "type double precision"),
        ("ARRAY[1]", "type integer[]"),
        ("1.5", "number 1.5"),
        ("'NaN'::numeric", "number NaN"),
        (
            "340282366920938463463374607431768211456",
            "number 340282366920938463463374607431768211456",
        ),
        ("jsonb_build_array(1.5)", "number 1.5"),
    ] {
        let call = format!("SELECT bellwether_invalidate('part', {value})");
        let error = sqlx::raw_sql(&call).execute(&place.pool).await.expect_err(value);
        let expected = format!("{named} cannot be a part of a key");
        assert!(error.to_string().contains(&expected), "{value}: {error}");
    }
}

#[tokio::test]
async fn the_table_can_be_made_twice_at_once_and_in_a_schema_of_its_own() {
    let place = Place::start().await;
    place.run("CREATE SCHEMA \"my cache\"").await;
    let migrations = || bellwether_sql::Migrations::new(place.pool.clone()).schema("my cache");
    let (one, other) = (migrations(), migrations());
    let (one, other) = tokio::join!(one.run(), other.run());
    one.and(other).expect("two migrations");
    let follower = place.follower().schema("my cache").cache(&place.items).start().await;
    crate::place::fill(&place.items, 42, 1).await;
    place.run("SELECT \"my cache\".bellwether_invalidate('item', 42)").await;
    let waits = "SELECT count(*) FROM \"my cache\".bellwether_changes WHERE applied_at IS NULL";
    while place.value(waits).await > 0 {}
    assert_eq!(crate::place::stored(&place.items, 42).await, None);
    drop(follower);
}

/// As when a service is deployed beside a long job.
#[tokio::test]
async fn the_migrations_of_a_start_wait_for_no_writer() {
    let place = Place::start().await;
    let mut writer = place.pool.begin().await.expect("a transaction");
    let record = sqlx::raw_sql("SELECT bellwether_invalidate('item', 42)");
    record.execute(&mut *writer).await.expect("a row");
    let migrations = bellwether_sql::Migrations::new(place.pool.clone());
    let run = timeout(PATIENCE, migrations.run()).await;
    run.expect("they wait for nothing").expect("the table");
    writer.commit().await.expect("a commit");
}
