//! `inspect`: what is stored of a key.

use std::time::Duration;

use bellwether::store::Standing;
use bellwether_redis::by_digest::{self, KeyState, WithdrawnDigest};
use serde_json::Value;

use crate::CliError;
use crate::args::DatabaseArgs;
use crate::changes;
use crate::hint;
use crate::output::{ResultFields, millis, show};
use crate::server::ServerArgs;
use crate::target::TargetArgs;

pub(crate) async fn run(
    server: &ServerArgs,
    what: TargetArgs,
    database: &DatabaseArgs,
    shows_value: bool,
    json: bool,
) -> Result<bool, CliError> {
    let target = what.find(server).await?;
    let WithdrawnDigest::Key(digest) = target.digest else {
        return Err("a tag has no list of its entries: inspect one of those".into());
    };
    let state = by_digest::inspect(&server.store()?, &digest).await?;
    let mut record = vec![("key", digest.to_string().into())];
    record.push(("name", target.typed.as_ref().map(ToString::to_string).into()));
    record.extend(entry_fields(&state));
    if let (true, Some(Ok(entry))) = (shows_value, &state.entry) {
        let text = std::str::from_utf8(entry.value().encoded());
        record.push(("value", text.unwrap_or("not text").into()));
    }
    record.extend(lease_fields(&state));
    record.extend(failure_fields(&state));
    let invalidated = state.watermark.map(|then| since(&state, then));
    record.push(("invalidated_ago_ms", invalidated.into()));
    let mut kinds = Vec::new();
    if let Some(url) = &database.database {
        match changes::of_key(url, target.typed.as_ref()).await {
            Ok(of_key) => {
                record.extend(of_key.fields);
                kinds = of_key.kinds;
            }
            Err(error) => record.push(("changes", error.to_string().into())),
        }
    }
    let hint = match hint::is_known(&state) {
        true => None,
        false => Some(hint::of(server, &target, &kinds).await),
    };
    record.push(("hint", hint.into()));
    show(record, json)?;
    Ok(true)
}

fn entry_fields(state: &KeyState) -> ResultFields {
    let entry = match &state.entry {
        None => return vec![("entry", "none".into())],
        Some(Err(why)) => return vec![("entry", "unreadable".into()), ("reason", (*why).into())],
        Some(Ok(entry)) => entry,
    };
    let Some(codec) = codec(entry.codec()) else {
        let reason = format!("this version has no codec {}: it counts as a miss", entry.codec());
        return vec![("entry", "unreadable".into()), ("reason", reason.into())];
    };
    let lifetimes = entry.lifetimes();
    let tags = state.tags.iter();
    let tags = tags.map(|(tag, standing)| format!("{tag} {}", word(*standing, state.now)));
    let (served, fresh, stale) = served(state);
    vec![
        ("entry", served.into()),
        ("codec", codec.into()),
        ("stored_ago_ms", since(state, entry.stored_at())),
        ("fresh_for_ms", millis(fresh)),
        ("then_stale_for_ms", millis(stale)),
        ("ttl_ms", millis(lifetimes.ttl())),
        ("stale_while_revalidate_ms", millis(lifetimes.while_revalidate())),
        ("stale_if_error_ms", millis(lifetimes.if_error())),
        ("expired_early", state.is_expired.into()),
        ("bytes", entry.value().encoded().len().into()),
        ("fence", entry.fence().into()),
        ("load_time_ms", millis(entry.load_time())),
        ("tags", tags.collect()),
    ]
}

/// The name of a codec: see `Codec::id`. A cache with another codec takes the entry for a miss. `None` if
/// this version has none of that number.
fn codec(id: u8) -> Option<&'static str> {
    match id {
        0 => Some("none: a mark that no value is stored"),
        1 => Some("json"),
        3 => Some("grpc"),
        5 => Some("postcard"),
        7 => Some("prost"),
        8 => Some("http"),
        64.. => Some("of the program"),
        _ => None,
    }
}

/// What callers get of an entry, by its life and its tags, and for how long.
fn served(state: &KeyState) -> (&'static str, Duration, Duration) {
    let Some(entry) = state.found() else {
        return ("outdated by a tag", Duration::ZERO, Duration::ZERO);
    };
    let fresh = entry.fresh_for().unwrap_or_default();
    match entry.remaining() {
        Some(Duration::ZERO) => ("over", fresh, fresh),
        Some(left) if fresh.is_zero() => ("stale", fresh, left),
        Some(left) => ("fresh", fresh, left - fresh),
        None => ("fresh", fresh, fresh),
    }
}

fn word(standing: Standing, now: u64) -> &'static str {
    match standing {
        Standing::Current => "current",
        Standing::StaleFrom(from) if from > now => "about to expire",
        Standing::StaleFrom(_) => "expired",
        Standing::Gone => "invalidated",
    }
}

fn lease_fields(state: &KeyState) -> ResultFields {
    let Some(lease) = &state.lease else { return vec![("lease", "free".into())] };
    // Enough to tell holders apart. The whole token would prove the lease.
    let token: String = lease.token.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    vec![
        ("lease", "held".into()),
        ("lease_lapses_in_ms", millis(lease.left)),
        ("lease_token", token.into()),
        ("lease_fence", lease.fence.into()),
        ("waiting_processes", lease.waiters.into()),
        ("trace", lease.trace.clone().into()),
    ]
}

fn failure_fields(state: &KeyState) -> ResultFields {
    let Some((failure, left, remembered)) = &state.failure else {
        return vec![("cooldown", "none".into())];
    };
    let message = Some(&*failure.message).filter(|message| !message.is_empty());
    vec![
        ("cooldown", if left.is_zero() { "over" } else { "on" }.into()),
        ("cooldown_left_ms", millis(*left)),
        ("failures_in_a_row", failure.times.into()),
        ("failure", format!("{:?}", failure.cause).into()),
        ("failure_message", message.into()),
        ("failure_forgotten_in_ms", millis(*remembered)),
    ]
}

/// How long ago a time of the server was.
fn since(state: &KeyState, then: u64) -> Value {
    millis(Duration::from_micros(state.now.saturating_sub(then)))
}
