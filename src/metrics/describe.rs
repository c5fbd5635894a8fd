//! What each metric is, for recorders that show it.

use metrics_facade::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Tells the installed recorder what each metric is: a text and a unit. Exporters show the text
/// beside the values, as Prometheus does in its `HELP` lines.
///
/// Call it once, after the recorder was installed. Without a recorder it does nothing.
pub fn describe() {
    for (name, unit, text) in COUNTERS {
        describe_counter!(name, unit, text);
    }
    for (name, unit, text) in GAUGES {
        describe_gauge!(name, unit, text);
    }
    for (name, unit, text) in HISTOGRAMS {
        describe_histogram!(name, unit, text);
    }
}

const COUNTERS: [(&str, Unit, &str); 28] = [
    ("bellwether_requests_total", Unit::Count, "Requests, by how they ended."),
    ("bellwether_loads_started_total", Unit::Count, "Calls of the loader, by why they started."),
    ("bellwether_loads_ended_total", Unit::Count, "Calls of the loader, by how they ended."),
    (
        "bellwether_wakes_total",
        Unit::Count,
        "Ends of waits for the load of another process. A missed push is a poll that found its end.",
    ),
    ("bellwether_leases_total", Unit::Count, "Leases that this process asked for."),
    ("bellwether_commits_total", Unit::Count, "Loaded answers that were to be stored."),
    ("bellwether_refreshes_total", Unit::Count, "Loads in the background, by how they ended."),
    ("bellwether_refused_total", Unit::Count, "Requests that a limit refused."),
    ("bellwether_invalidations_total", Unit::Count, "Invalidations and expirations."),
    ("bellwether_store_evictions_total", Unit::Count, "Entries that were removed to make room."),
    ("bellwether_store_operations_total", Unit::Count, "Operations of the store that have ended."),
    ("bellwether_store_errors_total", Unit::Count, "Operations of the store that have failed."),
    ("bellwether_store_connects_total", Unit::Count, "Attempts to connect to the store."),
    ("bellwether_store_outages_total", Unit::Count, "How often the store was taken to be down."),
    ("bellwether_store_pushes_total", Unit::Count, "Push messages of the store."),
    (
        "bellwether_store_unreadable_total",
        Unit::Count,
        "Entries that could not be read and counted as misses.",
    ),
    (
        "bellwether_store_invalidations_kept_total",
        Unit::Count,
        "Invalidations that have failed and are repeated.",
    ),
    (
        "bellwether_store_invalidations_replayed_total",
        Unit::Count,
        "Kept or re-asserted invalidations that the server has executed.",
    ),
    (
        "bellwether_store_invalidations_dropped_total",
        Unit::Count,
        "Invalidations that have failed and were too many to be kept.",
    ),
    (
        "bellwether_store_invalidations_reasserted_total",
        Unit::Count,
        "Invalidations that were repeated because the server may have lost them.",
    ),
    (
        "bellwether_store_node_requests_total",
        Unit::Count,
        "Commands and scripts that a server of the store was sent.",
    ),
    (
        "bellwether_store_node_redirections_total",
        Unit::Count,
        "Requests that a server has sent to another one of its cluster.",
    ),
    (
        "bellwether_store_node_errors_total",
        Unit::Count,
        "Requests to a server of the store that have failed.",
    ),
    (
        "bellwether_store_node_connects_total",
        Unit::Count,
        "Attempts to connect to a server of the store.",
    ),
    (
        "bellwether_store_node_outages_total",
        Unit::Count,
        "How often a server of the store was taken to be down.",
    ),
    ("bellwether_near_hits_total", Unit::Count, "Lookups that a copy in this process answered."),
    ("bellwether_near_evictions_total", Unit::Count, "Copies that were removed to make room."),
    (
        "bellwether_near_disconnected_seconds_total",
        Unit::Seconds,
        "Time in which no copy in this process could be served.",
    ),
];

const GAUGES: [(&str, Unit, &str); 13] = [
    ("bellwether_loads_running", Unit::Count, "Loads that have started and not ended."),
    (
        "bellwether_loads_queued",
        Unit::Count,
        "Uncached loads that wait because as many run as may.",
    ),
    (
        "bellwether_flights",
        Unit::Count,
        "Keys that are loaded, or whose load in another process is waited for.",
    ),
    ("bellwether_waiters", Unit::Count, "Callers that wait for these keys."),
    ("bellwether_failing_keys", Unit::Count, "Keys whose last loads have failed."),
    ("bellwether_store_entries", Unit::Count, "Entries that are kept."),
    ("bellwether_store_bytes", Unit::Bytes, "The size of the entries that are kept."),
    ("bellwether_store_up", Unit::Count, "0 while the circuit breaker of the store is open."),
    (
        "bellwether_store_wake_ups",
        Unit::Count,
        "1 for the way in which waiters learn that a load has ended.",
    ),
    (
        "bellwether_store_node_up",
        Unit::Count,
        "0 while the circuit breaker of a server of the store is open.",
    ),
    (
        "bellwether_store_invalidations_pending",
        Unit::Count,
        "Invalidations that are to be repeated.",
    ),
    ("bellwether_near_entries", Unit::Count, "Copies that are kept in this process."),
    ("bellwether_near_bytes", Unit::Bytes, "The size of the copies in this process."),
];

const HISTOGRAMS: [(&str, Unit, &str); 5] = [
    ("bellwether_load_duration_seconds", Unit::Seconds, "How long loads took."),
    (
        "bellwether_wait_duration_seconds",
        Unit::Seconds,
        "How long callers waited for the load of another caller that answered them.",
    ),
    ("bellwether_flight_callers", Unit::Count, "How many callers shared a load."),
    (
        "bellwether_notice_lag_seconds",
        Unit::Seconds,
        "How long ago the load of another process had ended when its waiters noticed.",
    ),
    (
        "bellwether_store_operation_duration_seconds",
        Unit::Seconds,
        "How long operations of the store took.",
    ),
];
