//! `doctor`: whether the servers are as the guides ask for.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bellwether::StoreError;
use bellwether_redis_client::{ClientSetup, RedisValue};
use serde_json::json;

use crate::CliError;
use crate::changes;
use crate::finding::{FINE, Finding, MEND, NOTE};
use crate::nodes::{ServerNode, list, nodes, text};
use crate::output::line;
use crate::server::ServerArgs;

/// Returns whether nothing must be mended.
pub(crate) async fn run(
    server: &ServerArgs,
    database: Option<String>,
    json: bool,
) -> Result<bool, CliError> {
    let mut is_well = report("all", of_store(server).await?, json)?;
    if let Some(url) = database {
        is_well &= report("database", changes::examine(&url).await, json)?;
    }
    match server.client(ClientSetup::default()).await {
        Ok(client) => {
            for node in nodes(&client) {
                let pace = of_pace(&node).await.unwrap_or_else(|error| refused("latency", &error));
                is_well &= report(&node.address, pace, json)?;
                let info = of_node(&node).await.unwrap_or_else(|error| refused("info", &error));
                is_well &= report(&node.address, info, json)?;
            }
        }
        Err(error) => is_well &= report("all", refused("commands", &error), json)?,
    }
    Ok(is_well)
}

/// Prints what was found at a server. Returns whether nothing of it must be mended.
fn report(at: &str, findings: Vec<Finding>, json: bool) -> io::Result<bool> {
    for (about, verdict, says) in &findings {
        line(&match json {
            true => {
                json!({ "verdict": verdict, "about": about, "at": at, "says": says }).to_string()
            }
            false => format!("{verdict:<6}{about:<13}{at:<22}{says}"),
        })?;
    }
    Ok(findings.iter().all(|(_, verdict, _)| *verdict != MEND))
}

fn refused(about: &'static str, error: &dyn ToString) -> Vec<Finding> {
    vec![(about, NOTE, format!("not checked: {}", error.to_string()))]
}

/// What a program meets when it connects.
async fn of_store(server: &ServerArgs) -> Result<Vec<Finding>, CliError> {
    let store = match server.options()?.connect().await {
        Ok(store) => store,
        Err(error) => return Ok(vec![("connect", MEND, error.to_string())]),
    };
    let messages = match store.stats().is_subscribed {
        true => (FINE, "waiters are woken at once"),
        false => (NOTE, "waiters poll: allow `&bw:* +subscribe +publish`"),
    };
    let near = server.options()?.near(1 << 20).connect().await;
    let tracking = match near.map(|store| store.is_tracking()) {
        Ok(true) => (FINE, "near copies are possible".to_owned()),
        Ok(false) => (NOTE, "refused, so near copies are not possible".to_owned()),
        Err(error) => (NOTE, format!("near copies are not possible: {error}")),
    };
    Ok(vec![
        ("connect", FINE, "a primary, with all rights that are needed".to_owned()),
        ("messages", messages.0, messages.1.to_owned()),
        ("tracking", tracking.0, tracking.1),
    ])
}

/// Its latency and its clock.
async fn of_pace(node: &ServerNode<'_>) -> Result<Vec<Finding>, StoreError> {
    let mut trips = Vec::new();
    let mut time = RedisValue::Nil;
    for _ in 0..PINGS {
        let began = Instant::now();
        time = node.run("TIME", &[]).await?;
        trips.push(began.elapsed());
    }
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    trips.sort();
    let median = trips[PINGS / 2];
    let (verdict, advice) = match median {
        _ if median > TOO_SLOW => (MEND, ": programs give up after 250 ms by default"),
        _ if median > SLOW => (NOTE, ": each hit takes one, so keep Redis near"),
        _ => (FINE, ""),
    };
    let latency = format!("{median:.1?}, the median of {PINGS} round trips{advice}");
    let number = |place| text(list(&time).get(place)?)?.parse::<f64>().ok();
    let ahead = number(0).zip(number(1)).map(|(seconds, micros)| seconds + micros / 1e6 - here);
    let ahead = ahead.unwrap_or_default();
    let clock = match ahead.abs() > 1.0 {
        true => (NOTE, ": keep those of primaries and replicas within a second"),
        false => (FINE, ""),
    };
    let clock = (clock.0, format!("{ahead:+.2} s from here{}", clock.1));
    Ok(vec![("latency", verdict, latency), ("clock", clock.0, clock.1)])
}

/// What a server says of itself.
async fn of_node(node: &ServerNode<'_>) -> Result<Vec<Finding>, StoreError> {
    let info = node.info("all").await?;
    let mut findings = of_info(&info);
    let persistence =
        match (node.config("save").await.as_deref(), info.get("aof_enabled").map(String::as_str)) {
            (_, Some("1")) => (NOTE, "appendonly: a restart can bring back what was invalidated"),
            (Some(""), _) => (FINE, "off"),
            (Some(_), _) => (NOTE, "save: a restart brings back what was invalidated"),
            (None, _) => (NOTE, NO_CONFIG),
        };
    findings.push(("persistence", persistence.0, persistence.1.to_owned()));
    findings.push(of_tracked(&info, node.config("tracking-table-max-keys").await));
    if info.get("cluster_enabled").is_some_and(|enabled| enabled == "1") {
        let allowed = node.config("cluster-allow-reads-when-down").await;
        let (verdict, says) = match allowed.as_deref() {
            Some("no") => (FINE, "not allowed while the cluster is down"),
            Some(_) => (MEND, "set cluster-allow-reads-when-down to no, or old entries are served"),
            None => (NOTE, NO_CONFIG),
        };
        findings.push(("reads", verdict, says.to_owned()));
    }
    Ok(findings)
}

/// How full its tracking table is, of as many names as it may have.
fn of_tracked(info: &HashMap<String, String>, most: Option<String>) -> Finding {
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
    let names = number(info.get("tracking_total_keys")).unwrap_or_default();
    let (verdict, says) = match number(most.as_ref()) {
        None => (NOTE, NO_CONFIG.to_owned()),
        Some(0) => (FINE, "without a limit".to_owned()),
        Some(most) if names >= most / 10 * 9 => {
            (NOTE, format!("of {most}, then near copies end early: raise tracking-table-max-keys"))
        }
        Some(most) => (FINE, format!("of {most}")),
    };
    ("tracked", verdict, format!("{names} names {says}"))
}

fn of_info(info: &HashMap<String, String>) -> Vec<Finding> {
    let field = |name| info.get(name).map_or("", String::as_str);
    let number = |name| field(name).parse::<u64>().unwrap_or_default();
    // Valkey has one for programs that know Redis only.
    let version = field("redis_version");
    let is_old = ["2.", "3.", "4.", "5.", "6.0."].iter().any(|old| version.starts_with(old));
    let version = match (info.get("valkey_version"), is_old) {
        (Some(version), _) => (FINE, format!("Valkey {version}")),
        (None, false) => (FINE, format!("Redis {version}")),
        (None, true) => (MEND, format!("Redis {version}: 6.2 is needed")),
    };
    let policy = field("maxmemory_policy");
    let eviction = match policy {
        "allkeys-lru" | "volatile-lru" => (FINE, ""),
        "noeviction" => (FINE, ": a full server serves hits, and a miss is an uncached load"),
        "volatile-ttl" => (MEND, ": leases go first, and keys are loaded twice; use allkeys-lru"),
        _ => (NOTE, ": it may evict leases and watermarks; use allkeys-lru"),
    };
    let [used, most] = ["used_memory", "maxmemory"].map(|name| number(name) >> 20);
    let evicted = number("evicted_keys");
    let memory = match most {
        0 => (NOTE, format!("not set; {used} MiB are used")),
        _ if policy == "noeviction" && used * 20 >= most * 19 => {
            (MEND, format!("{used} of {most} MiB used: it will refuse writes"))
        }
        _ => (FINE, format!("{used} of {most} MiB used, {evicted} evicted since its start")),
    };
    let replicas = number("connected_slaves");
    // The field is there only with the setting.
    let replication = match replicas > 0 && !info.contains_key("min_slaves_good_slaves") {
        true => (NOTE, ": with min-replicas-to-write 1, a primary that is cut off refuses writes"),
        false => (FINE, ""),
    };
    vec![
        ("version", version.0, version.1),
        ("eviction", eviction.0, format!("{policy}{}", eviction.1)),
        ("maxmemory", memory.0, memory.1),
        ("replicas", replication.0, format!("{replicas}{}", replication.1)),
    ]
}

const PINGS: usize = 21;

/// From here on, callers notice each hit.
const SLOW: Duration = Duration::from_millis(10);

/// Half of what a command may take by default.
const TOO_SLOW: Duration = Duration::from_millis(125);

const NO_CONFIG: &str = "not checked without +config|get";
