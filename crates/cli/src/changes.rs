//! What a database says of its table of changes.

use sqlx::AnyPool;
use sqlx::any::install_default_drivers;

use crate::finding::{FINE, Finding, MEND, NOTE};

/// Examines the table, and whether followers see to it.
pub(crate) async fn examine(url: &str) -> Vec<Finding> {
    install_default_drivers();
    match of_table(url).await {
        Ok(findings) => findings,
        Err(error) => vec![("changes", MEND, error.to_string())],
    }
}

async fn of_table(url: &str) -> Result<Vec<Finding>, sqlx::Error> {
    let pool = AnyPool::connect(url).await?;
    let is_postgres = url.starts_with("postgres");
    let statement = if is_postgres { POSTGRES } else { MYSQL };
    let (pending, oldest, failed, followed): (i64, i64, i64, i64) =
        sqlx::query_as(statement).fetch_one(&pool).await?;
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
