//! What a database says of its table of changes.

use std::io::ErrorKind;
use std::time::Duration;

use bellwether_sql::json_parts;
use serde_json::Value;
use sqlx::any::install_default_drivers;
use sqlx::{AnyConnection, Connection, Error};
use tokio::time::timeout;

use crate::CliError;
use crate::finding::{FINE, Finding, MEND, NOTE};
use crate::output::{ResultFields, millis};
use crate::typed_key::TypedKey;

/// Examines the table, and whether followers see to it.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    match of_table(url).await {
        Ok(findings) => findings,
        Err(error) => vec![("changes", MEND, error.to_string())],
    }
}

/// What the table has of a key.
pub(crate) struct KeyChanges {
    pub(crate) fields: ResultFields,
    /// The caches of followers, as `item` or `item@2`.
    pub(crate) kinds: Vec<String>,
}

/// Counts the rows of a key, and those that wait, were applied or have failed.
pub(crate) async fn of_key(url: &str, typed: Option<&TypedKey>) -> Result<KeyChanges, CliError> {
    let mut connection: AnyConnection = connected(url).await?;
    let kinds = sqlx::query_scalar(KINDS).fetch_all(&mut connection).await?;
    let Some(typed) = typed else {
        let why = "rows have keys: give the key, or --keys";
        return Ok(KeyChanges { fields: vec![("changes", why.into())], kinds });
    };
    let statement = if is_postgres(url) { POSTGRES_OF_KEY } else { MYSQL_OF_KEY };
    let rows = sqlx::query_as(statement).bind(typed.name()).bind(json_parts(&typed.key()?));
    let (pending, oldest, applied, last, failed, failure): OfKey =
        rows.fetch_one(&mut connection).await?;
    let ago = |age: Option<i64>| -> Value {
        age.map(|age| millis(Duration::from_millis(age.unsigned_abs()))).into()
    };
    let fields = vec![
        ("changes_pending", pending.into()),
        ("oldest_pending_ago_ms", ago(oldest)),
        ("changes_applied", applied.into()),
        ("last_applied_ago_ms", ago(last)),
        ("changes_failed", failed.into()),
        ("change_failure", failure.into()),
    ];
    Ok(KeyChanges { fields, kinds })
}

/// Rows that wait, and the age of the oldest in ms; rows that were applied, and how long ago the last one was; rows that
/// have failed, and why.
type OfKey = (i64, Option<i64>, i64, Option<i64>, i64, Option<String>);

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres")
}

/// Not a pool, which tries for half a minute and does not say why it failed.
pub(crate) async fn connected<C: Connection>(url: &str) -> Result<C, Error> {
    install_default_drivers();
    let connecting = timeout(Duration::from_secs(10), C::connect(url));
    connecting.await.unwrap_or_else(|_| Err(Error::Io(ErrorKind::TimedOut.into())))
}

async fn of_table(url: &str) -> Result<Vec<Finding>, Error> {
    let mut connection: AnyConnection = connected(url).await?;
    let statement = if is_postgres(url) { POSTGRES } else { MYSQL };
    let (pending, oldest, failed, followed): (i64, i64, i64, i64) =
        sqlx::query_as(statement).fetch_one(&mut connection).await?;
    let waits = match (pending, oldest) {
        (0, _) => (FINE, "no change waits".to_owned()),
        (_, ..30) => (FINE, format!("{pending} changes wait, the oldest for {oldest} s")),
        _ => (
            MEND,
            format!("{pending} changes wait, the oldest for {oldest} s: see to the followers"),
        ),
    };
    let dead = match failed {
        0 => (FINE, "none has failed".to_owned()),
        _ => (NOTE, format!("{failed} can never be applied: their column `failure` says why")),
    };
    let followers = match followed {
        0 => (NOTE, "no follower was started in the last day".to_owned()),
        _ => (FINE, format!("followers have {followed} caches")),
    };
    let findings = [("changes", waits), ("failures", dead), ("followers", followers)];
    Ok(findings.map(|(about, (verdict, says))| (about, verdict, says)).into())
}

/// How many rows wait, and for how many seconds; how many have failed; how many caches followers have.
const POSTGRES: &str = "SELECT count(*) FILTER (WHERE failure IS NULL),
    coalesce(extract(epoch FROM clock_timestamp() - min(made_at) FILTER (WHERE failure IS NULL)), 0)::bigint,
    count(failure),
    (SELECT count(*) FROM bellwether_caches WHERE seen_at > clock_timestamp() - interval '1 day')
    FROM bellwether_changes WHERE applied_at IS NULL";

const MYSQL: &str = "SELECT COUNT(*) - COUNT(failure),
    COALESCE(TIMESTAMPDIFF(SECOND, MIN(IF(failure IS NULL, made_at, NULL)), CURRENT_TIMESTAMP(6)), 0),
    COUNT(failure),
    (SELECT COUNT(*) FROM bellwether_caches WHERE seen_at > CURRENT_TIMESTAMP(6) - INTERVAL 1 DAY)
    FROM bellwether_changes WHERE applied_at IS NULL";

const KINDS: &str = "SELECT DISTINCT kind FROM bellwether_caches ORDER BY kind LIMIT 100";

const POSTGRES_OF_KEY: &str = "SELECT count(*) FILTER (WHERE applied_at IS NULL AND failure IS NULL),
    (extract(epoch FROM clock_timestamp() - min(made_at) FILTER (WHERE applied_at IS NULL AND failure IS NULL))
        * 1000)::bigint,
    count(applied_at), (extract(epoch FROM clock_timestamp() - max(applied_at)) * 1000)::bigint,
    count(failure), max(failure)
    FROM bellwether_changes WHERE target = 'key' AND name = $1 AND parts = $2::text::jsonb";

/// Two arrays of equal length that contain each other have the same parts.
const MYSQL_OF_KEY: &str = "SELECT COUNT(IF(applied_at IS NULL AND failure IS NULL, 1, NULL)),
    TIMESTAMPDIFF(MICROSECOND, MIN(IF(applied_at IS NULL AND failure IS NULL, made_at, NULL)), CURRENT_TIMESTAMP(6))
        DIV 1000,
    COUNT(applied_at), TIMESTAMPDIFF(MICROSECOND, MAX(applied_at), CURRENT_TIMESTAMP(6)) DIV 1000,
    COUNT(failure), CAST(MAX(failure) AS CHAR(500))
    FROM bellwether_changes, (SELECT ? AS name_of, ? AS parts_of) AS sought
    WHERE target = 'key' AND name = name_of AND JSON_LENGTH(parts) = JSON_LENGTH(parts_of)
        AND JSON_CONTAINS(parts, parts_of) AND JSON_CONTAINS(parts_of, parts)";
