//! `watch`: what happens in a namespace, from the names that the servers report to have changed.
//!
//! A server reports the names that have changed since its last report in their order. So the names of
//! one key that follow each other have changed at one moment, most often by one script.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellwether::store::Digest;
use bellwether_redis_client::{ClientSetup, RedisClient, ServerEvent, ServerObserver, Tracking};
use tokio::time::{MissedTickBehavior, interval};

use crate::CliError;
use crate::known_keys::KnownKeysArgs;
use crate::nodes::nodes;
use crate::output::{ResultFields, line, show, text};
use crate::server::ServerArgs;

pub(crate) async fn run(
    server: &ServerArgs,
    every: Duration,
    count: Option<u64>,
    known: &KnownKeysArgs,
    json: bool,
) -> Result<bool, CliError> {
    let names = known.read()?;
    let observer = Arc::new(NamespaceObserver::default());
    let mut setup = ClientSetup { tracking: Tracking::Namespace, ..ClientSetup::default() };
    setup.observers.push(Arc::clone(&observer) as _);
    let client = server.client(setup).await?;
    if !client.is_tracked() {
        return Err("the server reports no changes: +client|tracking and RESP3 are needed".into());
    }
    let mut ticks = interval(every.max(Duration::from_millis(100)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut held, mut before) = (SeenLeases::new(), lookups(&client).await);
    for number in 0..count.unwrap_or(u64::MAX) {
        ticks.tick().await;
        // It is a request to each node, which also opens broken connections again.
        let now = lookups(&client).await;
        let executed = before.zip(now).map(|(before, now)| now.saturating_sub(before));
        before = now;
        let (mut record, busiest) = mem::take(&mut *observer.reports()).count(&mut held);
        record.push(("lookups", executed.into()));
        if known.is_given() {
            let name = busiest.and_then(|key| names.get(&key)).map(|key| key.to_string());
            record.push(("busiest_key", name.unwrap_or_default().into()));
        }
        if json {
            show(record, json)?;
            continue;
        }
        if number % 20 == 0 {
            line(&record.iter().map(|(name, _)| format!("{name:>12}")).collect::<String>())?;
        }
        let cells = record.iter().map(|(name, value)| match *name {
            "busiest" => format!("{:>12.8}", text(name, value)),
            _ => format!("{:>12}", text(name, value)),
        });
        line(&cells.collect::<String>())?;
    }
    Ok(true)
}

/// How many lookups all servers have executed, if that is known.
async fn lookups(client: &RedisClient) -> Option<u64> {
    let mut sum = 0;
    for node in nodes(client) {
        let info = node.info("commandstats").await.ok()?;
        let calls = info.get("cmdstat_mget").and_then(|calls| calls.split(['=', ',']).nth(1));
        sum += calls.and_then(|calls| calls.parse::<u64>().ok()).unwrap_or_default();
    }
    Some(sum)
}

/// Notes what servers report.
#[derive(Debug, Default)]
struct NamespaceObserver(Mutex<Reports>);

/// What was reported since it was last taken.
#[derive(Debug, Default)]
struct Reports {
    /// The names of keys: what follows the digest.
    changed: Vec<(Digest, String)>,
    tags: u64,
    gaps: u64,
}

/// The keys whose lease is held, and when that was last seen.
type SeenLeases = HashMap<Digest, Instant>;

impl ServerObserver for NamespaceObserver {
    fn note(&self, event: ServerEvent<'_>) {
        let mut reports = self.reports();
        match event {
            ServerEvent::Changed { name, digest } => {
                let name = String::from_utf8_lossy(name);
                let suffix = name.rsplit('}').next().unwrap_or_default();
                reports.changed.push((*digest, suffix.to_owned()));
            }
            ServerEvent::TagChanged(_) => reports.tags += 1,
            ServerEvent::AllChanged { .. } | ServerEvent::Disconnected { .. } => reports.gaps += 1,
            _ => {}
        }
    }
}

impl NamespaceObserver {
    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reports {
    /// Counts what has happened to keys: see `--help`. Returns the busiest one, too.
    fn count(self, held: &mut SeenLeases) -> (ResultFields, Option<Digest>) {
        let [mut stored, mut failed, mut invalidated, mut ended] = [0; 4];
        let mut leases = HashMap::<Digest, u64>::new();
        held.retain(|_, seen| seen.elapsed() < TERM);
        // The names of a key that have changed at one moment.
        for names in self.changed.chunk_by(|one, next| one.0 == next.0 && one.1 < next.1) {
            let key = names[0].0;
            let has = |name| names.iter().any(|(_, changed)| changed == name);
            let was_held = held.remove(&key).is_some();
            // One that was taken and given up at one moment counts as well.
            if has(":lease") && !was_held && !has(":watermark") {
                *leases.entry(key).or_default() += 1;
            }
            match (has(""), has(":lease")) {
                _ if has(":watermark") => invalidated += 1,
                (true, true) => stored += 1,
                (true, false) => ended += 1,
                (false, true) if was_held && has(":failed") => failed += 1,
                (false, is_lease) if is_lease || was_held => {
                    held.insert(key, Instant::now());
                }
                _ => {}
            }
        }
        let busiest = leases.iter().max_by_key(|(_, leases)| **leases).map(|(key, _)| *key);
        let shown = busiest.map_or_else(String::new, |key| key.to_string());
        let record = vec![
            ("leases", leases.values().sum::<u64>().into()),
            ("stored", stored.into()),
            ("failed", failed.into()),
            ("invalidated", invalidated.into()),
            ("ended", ended.into()),
            ("tags", self.tags.into()),
            ("gaps", self.gaps.into()),
            ("busiest", shown.into()),
        ];
        (record, busiest)
    }
}

/// The usual term of a lease. A holder renews it within that.
const TERM: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

    /// The counts after these names of keys have changed, each at one moment.
    fn counts<const N: usize>(moments: &[(u64, &[&str])], names: [&'static str; N]) -> [u64; N] {
        let watched = NamespaceObserver::default();
        for (sku, suffixes) in moments {
            let digest = Key::of("item").with(*sku).digest();
            for suffix in *suffixes {
                let name = format!("bw:shop:{{{digest}}}{suffix}");
                watched.note(ServerEvent::Changed { name: name.as_bytes(), digest: &digest });
            }
        }
        let (record, _) = mem::take(&mut *watched.reports()).count(&mut SeenLeases::new());
        let of = |name| record.iter().find(|(counted, _)| *counted == name).map(|it| it.1.as_u64());
        names.map(|name| of(name).flatten().expect("a count"))
    }

    #[test]
    fn a_load_is_one_lease_and_one_entry() {
        // It is renewed, and another key is loaded meanwhile, at one moment.
        let renewed = (1, &[":lease"][..]);
        let stored = (1, &["", ":failed", ":lease"][..]);
        let moments = [renewed, (2, &["", ":lease"]), renewed, stored];
        let seen = counts(&moments, ["leases", "stored", "failed", "ended"]);
        assert_eq!(seen, [2, 2, 0, 0]);
    }

    #[test]
    fn a_failure_and_the_load_after_it_are_told_apart() {
        let [taken, failed] = [(1, &[":lease"][..]), (1, &[":failed", ":lease"][..])];
        let moments = [taken, failed, failed, (1, &["", ":lease"])];
        assert_eq!(counts(&moments, ["leases", "failed", "stored"]), [2, 1, 1]);
    }

    #[test]
    fn invalidations_and_ends_of_entries_are_counted() {
        let moments: [(u64, &[&str]); 3] =
            [(1, &["", ":watermark"]), (1, &[":watermark"]), (2, &[""])];
        assert_eq!(counts(&moments, ["invalidated", "ended", "leases"]), [2, 1, 0]);
    }
}
