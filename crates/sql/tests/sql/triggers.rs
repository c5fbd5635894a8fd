//! Writers that have never heard of a cache.

use bellwether::Changed;
use bellwether_sql::ChangeLog;

use crate::place::{Place, fill, stored};

/// The rows that were recorded, in order of their text, and takes them.
async fn recorded(place: &Place) -> Vec<String> {
    let taken = "WITH taken AS (DELETE FROM bellwether_changes RETURNING target, name, parts)
        SELECT target || ' ' || name || ' ' || parts::text FROM taken ORDER BY 1";
    sqlx::query_scalar(taken).fetch_all(&place.pool).await.expect("rows")
}

const TABLES: &str = "
    CREATE TABLE items (id bigint PRIMARY KEY, shelf text, price bigint);
    CREATE TABLE lots (item_id bigint REFERENCES items ON UPDATE CASCADE ON DELETE CASCADE, \"no.\" int);
    SELECT bellwether_watch('items', 'key', 'item', 'id');
    SELECT bellwether_watch('items', 'tag', 'shelf', 'shelf');
    CREATE TRIGGER lots AFTER INSERT OR UPDATE OR DELETE ON lots
        FOR EACH ROW EXECUTE FUNCTION bellwether_changed('key', 'lot', 'item_id', 'no.');";

#[tokio::test]
async fn triggers_record_the_old_and_the_new_keys_of_all_rows_that_a_statement_changes() {
    let place = Place::start().await;
    place.run(TABLES).await;
    place
        .run("INSERT INTO items VALUES (1, 'a', 1), (2, 'a', 1); INSERT INTO lots VALUES (1, 1)")
        .await;
    let expected = ["key item [1]", "key item [2]", "key lot [1, 1]", "tag shelf [\"a\"]"];
    assert_eq!(recorded(&place).await, expected);
    place.run("UPDATE items SET price = 2; UPDATE items SET price = 3 WHERE id = 77").await;
    assert_eq!(recorded(&place).await, ["key item [1]", "key item [2]", "tag shelf [\"a\"]"]);
    place.run("UPDATE items SET shelf = NULL WHERE id = 2").await;
    assert_eq!(recorded(&place).await, ["key item [2]", "tag shelf [\"a\"]", "tag shelf [null]"]);
    place.run("TRUNCATE items CASCADE").await;
    let expected = ["key item [1]", "key item [2]", "tag shelf [\"a\"]", "tag shelf [null]"];
    assert_eq!(recorded(&place).await, expected);
}

#[tokio::test]
async fn foreign_keys_that_cascade_are_changes_too() {
    let place = Place::start().await;
    place.run(TABLES).await;
    place.run("INSERT INTO items VALUES (1, 'a', 1); INSERT INTO lots VALUES (1, 1), (1, 2)").await;
    recorded(&place).await;
    place.run("UPDATE items SET id = 5").await;
    let expected = [
        "key item [1]",
        "key item [5]",
        "key lot [1, 1]",
        "key lot [1, 2]",
        "key lot [5, 1]",
        "key lot [5, 2]",
        "tag shelf [\"a\"]",
    ];
    assert_eq!(recorded(&place).await, expected);
    place.run("DELETE FROM items").await;
    let expected = ["key item [5]", "key lot [5, 1]", "key lot [5, 2]", "tag shelf [\"a\"]"];
    assert_eq!(recorded(&place).await, expected);
}

/// The friends of both have changed.
#[tokio::test]
async fn a_table_can_be_watched_by_several_columns_for_one_cache() {
    let place = Place::start().await;
    place.run("CREATE TABLE friends (one bigint, other bigint)").await;
    let name = "friends_of_a_user_in_a_cache_with_a_name_of_more_than_63_bytes_";
    for column in ["one", "other"] {
        for name in [format!("{name}a"), format!("{name}b")] {
            place
                .run(&format!("SELECT bellwether_watch('friends', 'key', '{name}', '{column}')"))
                .await;
        }
    }
    place.run("INSERT INTO friends VALUES (1, 2)").await;
    let expected = ["a [1]", "a [2]", "b [1]", "b [2]"].map(|end| format!("key {name}{end}"));
    assert_eq!(recorded(&place).await, expected);
}

#[tokio::test]
async fn a_statement_that_changes_many_keys_records_one_tag_instead() {
    let place = Place::start().await;
    place.run("CREATE TABLE items (id bigint PRIMARY KEY, price bigint)").await;
    place.run("SELECT bellwether_watch('items', 'key', 'item', 'id', '>100', 'items')").await;
    place.run("INSERT INTO items SELECT id, 1 FROM generate_series(1, 100) AS id").await;
    assert_eq!(recorded(&place).await.len(), 100);
    place.run("INSERT INTO items VALUES (101, 1); UPDATE items SET price = 2").await;
    assert_eq!(recorded(&place).await, ["key item [101]", "tag items []"]);
}

/// A trigger must not fail the writers of a table.
#[tokio::test]
async fn a_role_without_rights_on_the_table_of_changes_writes_by_triggers_and_not_by_itself() {
    let place = Place::start().await;
    place.run(TABLES).await;
    place.run("CREATE ROLE shop; GRANT INSERT, UPDATE ON items, lots TO shop").await;
    place.run("SET ROLE shop; INSERT INTO items VALUES (1, 'a', 1); INSERT INTO lots VALUES (1, 1); RESET ROLE").await;
    assert_eq!(recorded(&place).await.len(), 3);
    let refused = "SET ROLE shop; SELECT bellwether_invalidate('item', 1)";
    let error = sqlx::raw_sql(refused).execute(&place.pool).await.expect_err("no right");
    assert!(
        error.to_string().contains("permission denied for table bellwether_changes"),
        "{error}"
    );

    // A program that records changes needs one right.
    place.run("GRANT INSERT ON bellwether_changes TO shop").await;
    let mut transaction = ChangeLog::new(place.pool.clone()).begin().await.expect("a transaction");
    sqlx::raw_sql("SET LOCAL ROLE shop").execute(&mut *transaction).await.expect("a role");
    transaction.invalidate(&place.items, 2);
    assert!(matches!(transaction.commit().await.expect("a commit"), Changed::Invalidated(())));
    assert_eq!(recorded(&place).await, ["key item [2]"]);
}

#[tokio::test]
async fn nothing_old_is_left_after_a_bulk_update_by_psql() {
    const ROWS: i64 = 10_000;
    let place = Place::start().await;
    let _follower = place.follow().await;
    place.run("CREATE TABLE items (id bigint PRIMARY KEY, price bigint)").await;
    place
        .run(&format!("INSERT INTO items SELECT id, 1 FROM generate_series(1, {ROWS}) AS id"))
        .await;
    place.run("SELECT bellwether_watch('items', 'key', 'item', 'id')").await;
    for id in 1..=ROWS {
        fill(&place.items, id, 1).await;
    }
    place.postgres.command("UPDATE items SET price = 2");
    place.applied().await;
    for id in 1..=ROWS {
        assert_eq!(stored(&place.items, id).await, None, "{id}");
    }
}
