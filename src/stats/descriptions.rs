//! What each metric of caches and stores is.

use super::metric_description::{MetricDescription, MetricUnit};

/// What each metric of caches and stores is. The feature `metrics` describes its metrics by this list,
/// and `bellwether-opentelemetry` its instruments. Use it for an exporter of your own. That of locks is
/// `bellwether_lock::LockStats::METRICS`.
pub const METRICS: &[MetricDescription] = &[
    MetricDescription::counter(
        "bellwether_requests_total",
        MetricUnit::Count,
        "Requests, by how they ended.",
    ),
    MetricDescription::counter(
        "bellwether_loads_started_total",
        MetricUnit::Count,
        "Calls of the loader, by why they started.",
    ),
    MetricDescription::counter(
        "bellwether_loads_ended_total",
        MetricUnit::Count,
        "Calls of the loader, by how they ended.",
    ),
    MetricDescription::counter(
        "bellwether_wakes_total",
        MetricUnit::Count,
        "Ends of waits for the load of another process. A missed push is a poll that found its end.",
    ),
    MetricDescription::counter(
        "bellwether_leases_total",
        MetricUnit::Count,
        "Leases that this process asked for.",
    ),
    MetricDescription::counter(
        "bellwether_commits_total",
        MetricUnit::Count,
        "Loaded answers that were to be stored.",
    ),
    MetricDescription::counter(
        "bellwether_refreshes_total",
        MetricUnit::Count,
        "Loads in the background, by how they ended.",
    ),
    MetricDescription::counter(
        "bellwether_refused_total",
        MetricUnit::Count,
        "Requests that a limit refused.",
    ),
    MetricDescription::counter(
        "bellwether_invalidations_total",
        MetricUnit::Count,
        "Invalidations and expirations.",
    ),
    MetricDescription::counter(
        "bellwether_store_evictions_total",
        MetricUnit::Count,
        "Entries that were removed to make room.",
    ),
    MetricDescription::counter(
        "bellwether_store_operations_total",
        MetricUnit::Count,
        "Operations of the store that have ended.",
    ),
    MetricDescription::counter(
        "bellwether_store_errors_total",
        MetricUnit::Count,
        "Operations of the store that have failed.",
    ),
    MetricDescription::counter(
        "bellwether_store_connects_total",
        MetricUnit::Count,
        "Attempts to connect to the store.",
    ),
    MetricDescription::counter(
        "bellwether_store_outages_total",
        MetricUnit::Count,
        "How often the store was taken to be down.",
    ),
    MetricDescription::counter(
        "bellwether_store_pushes_total",
        MetricUnit::Count,
        "Push messages of the store.",
    ),
    MetricDescription::counter(
        "bellwether_store_unreadable_total",
        MetricUnit::Count,
        "Entries that could not be read and counted as misses.",
    ),
    MetricDescription::counter(
        "bellwether_store_invalidations_kept_total",
        MetricUnit::Count,
        "Invalidations that have failed and are repeated.",
    ),
    MetricDescription::counter(
        "bellwether_store_invalidations_replayed_total",
        MetricUnit::Count,
        "Kept or re-asserted invalidations that the server has executed.",
    ),
    MetricDescription::counter(
        "bellwether_store_invalidations_dropped_total",
        MetricUnit::Count,
        "Invalidations that have failed and were too many to be kept.",
    ),
    MetricDescription::counter(
        "bellwether_store_invalidations_reasserted_total",
        MetricUnit::Count,
        "Invalidations that were repeated because the server may have lost them.",
    ),
    MetricDescription::counter(
        "bellwether_store_node_requests_total",
        MetricUnit::Count,
        "Commands and scripts that a server of the store was sent.",
    ),
    MetricDescription::counter(
        "bellwether_store_node_redirections_total",
        MetricUnit::Count,
        "Requests that a server has sent to another one of its cluster.",
    ),
    MetricDescription::counter(
        "bellwether_store_node_errors_total",
        MetricUnit::Count,
        "Requests to a server of the store that have failed.",
    ),
    MetricDescription::counter(
        "bellwether_store_node_connects_total",
        MetricUnit::Count,
        "Attempts to connect to a server of the store.",
    ),
    MetricDescription::counter(
        "bellwether_store_node_outages_total",
        MetricUnit::Count,
        "How often a server of the store was taken to be down.",
    ),
    MetricDescription::counter(
        "bellwether_near_hits_total",
        MetricUnit::Count,
        "Lookups that a copy in this process answered.",
    ),
    MetricDescription::counter(
        "bellwether_near_evictions_total",
        MetricUnit::Count,
        "Copies that were removed to make room.",
    ),
    MetricDescription::counter(
        "bellwether_near_disconnected_seconds_total",
        MetricUnit::Seconds,
        "Time in which no copy in this process could be served.",
    ),
    MetricDescription::gauge(
        "bellwether_loads_running",
        MetricUnit::Count,
        "Loads that have started and not ended.",
    ),
    MetricDescription::gauge(
        "bellwether_loads_queued",
        MetricUnit::Count,
        "Uncached loads that wait because as many run as may.",
    ),
    MetricDescription::gauge(
        "bellwether_flights",
        MetricUnit::Count,
        "Keys that are loaded, or whose load in another process is waited for.",
    ),
    MetricDescription::gauge(
        "bellwether_waiters",
        MetricUnit::Count,
        "Callers that wait for these keys.",
    ),
    MetricDescription::gauge(
        "bellwether_failing_keys",
        MetricUnit::Count,
        "Keys whose last loads have failed.",
    ),
    MetricDescription::gauge(
        "bellwether_store_entries",
        MetricUnit::Count,
        "Entries that are kept.",
    ),
    MetricDescription::gauge(
        "bellwether_store_bytes",
        MetricUnit::Bytes,
        "The size of the entries that are kept.",
    ),
    MetricDescription::gauge(
        "bellwether_store_up",
        MetricUnit::Count,
        "0 while the circuit breaker of the store is open.",
    ),
    MetricDescription::gauge(
        "bellwether_store_wake_ups",
        MetricUnit::Count,
        "1 for the way in which waiters learn that a load has ended.",
    ),
    MetricDescription::gauge(
        "bellwether_store_node_up",
        MetricUnit::Count,
        "0 while the circuit breaker of a server of the store is open.",
    ),
    MetricDescription::gauge(
        "bellwether_store_invalidations_pending",
        MetricUnit::Count,
        "Invalidations that are to be repeated.",
    ),
    MetricDescription::gauge(
        "bellwether_near_entries",
        MetricUnit::Count,
        "Copies that are kept in this process.",
    ),
    MetricDescription::gauge(
        "bellwether_near_bytes",
        MetricUnit::Bytes,
        "The size of the copies in this process.",
    ),
    MetricDescription::histogram(
        "bellwether_load_duration_seconds",
        MetricUnit::Seconds,
        "How long loads took.",
    ),
    MetricDescription::histogram(
        "bellwether_wait_duration_seconds",
        MetricUnit::Seconds,
        "How long callers waited for the load of another caller that answered them.",
    ),
    MetricDescription::histogram(
        "bellwether_flight_callers",
        MetricUnit::Count,
        "How many callers shared a load.",
    ),
    MetricDescription::histogram(
        "bellwether_notice_lag_seconds",
        MetricUnit::Seconds,
        "How long ago the load of another process had ended when its waiters noticed.",
    ),
    MetricDescription::histogram(
        "bellwether_store_operation_duration_seconds",
        MetricUnit::Seconds,
        "How long operations of the store took.",
    ),
];
