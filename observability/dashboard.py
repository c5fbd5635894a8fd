#!/usr/bin/env python3
"""Writes dashboard.json, the dashboard of bellwether for Grafana.

    pip install --require-hashes -r scripts/grafana-requirements.txt --target target/grafana
    PYTHONPATH=target/grafana python3 observability/dashboard.py > observability/dashboard.json

A panel is a line of a table below. Grafana's own builders give it its form, so the JSON is what
Grafana reads. A test runs each query against a real Prometheus and wants data from it.
"""

import json
from itertools import count

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    SortOrder,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# Which series a panel shows: those of caches, of stores, of followers, and of sets of locks.
CACHE = 'job=~"$job", instance=~"$instance", cache=~"$cache"'
STORE = 'job=~"$job", instance=~"$instance", store=~"$store"'
CHANGES = 'job=~"$job", instance=~"$instance"'
LOCKS = 'job=~"$job", instance=~"$instance", kind=~"$locks"'


def metric(name, of, *more):
    """Series of a metric, among those that are chosen."""
    return "bellwether_%s{%s}" % (name, ", ".join([of, *more]))


def per_second(name, of, by, *more):
    """How fast a counter grows, for each value of a label."""
    return "sum by (%s) (rate(%s[$__rate_interval]))" % (by, metric(name, of, *more))


def share(part, whole):
    """The share of some events among others, as two pairs of a counter and a condition."""
    rates = ("sum(rate(%s[$__rate_interval]))" % metric(name, CACHE, *more) for name, *more in (part, whole))
    return " / ".join(rates)


def by_cache(part, whole):
    """The same, for each cache."""
    return " / ".join(per_second(name, CACHE, "cache", *more) for name, *more in (part, whole))


def quantile(share, name, of, by):
    """The value that this share of the values of a histogram does not exceed."""
    rates = "sum by (le, %s) (rate(%s[$__rate_interval]))" % (by, metric(name + "_bucket", of))
    return "histogram_quantile(%s, %s)" % (share, rates)


REQUESTS = "requests_total"
ANSWERED = (REQUESTS, 'outcome!="left"')

# Each with a title, a unit, a query, and what it means. The colour turns where the numbers say, from
# the first colour to the last.
STATS = [
    ("Answered from the cache", "percentunit", share((REQUESTS, 'outcome=~"hit|stale"'), ANSWERED), [],
     "Requests that a stored answer has answered, fresh or stale."),
    ("Loads saved by sharing", "percentunit",
     share((REQUESTS, 'outcome="collapsed"'), (REQUESTS, 'outcome=~"collapsed|led|bypassed"')), [],
     "Of the requests that needed a load: those that the load of another caller has answered."),
    ("Requests per load", "none", share(ANSWERED, ("loads_started_total",)), [],
     "How many requests there are for each call of the loader."),
    ("Failed requests", "percentunit",
     share((REQUESTS, 'outcome="failed"', 'detail!~"not_found|contended"'), ANSWERED),
     [("green", None), ("orange", 0.01), ("red", 0.05)],
     "Requests that ended with an error, and not because there is no such thing."),
    ("Failed loads", "percentunit",
     share(("load_duration_seconds_count", 'result=~"failed|timed_out|panicked"'), ("load_duration_seconds_count",)),
     [("green", None), ("orange", 0.05), ("red", 0.5)],
     "Calls of the loader that failed, timed out or panicked. Stale answers may hide them from callers."),
    ("Alerts", "none", 'count(ALERTS{alertname=~"Bellwether.+", alertstate="firing"}) or vector(0)',
     [("green", None), ("red", 1)],
     "Alerts of rules.yml that fire now."),
]

# Each with a title, a unit, whether the series add up, a query, a legend, and what it means.
ROWS = [
    ("Requests", [
        ("Requests by outcome", "reqps", True, per_second(REQUESTS, CACHE, "outcome"), "{{outcome}}",
         "hit: a fresh answer was stored. stale: an older one was served. collapsed: the load of another "
         "caller. led: its own load. bypassed: past the cache. left: the caller went away."),
        ("Stampedes held back", "reqps", True, per_second(REQUESTS, CACHE, "detail", 'outcome="collapsed"'),
         "{{detail}}",
         "Callers that shared the load of another caller: in the same process (local) or in another one "
         "(remote). Without the cache, each would have been a load."),
        ("Size of the stampedes", "none", False, quantile(0.99, "flight_callers", CACHE, "cache"), "{{cache}}",
         "99 % of the loads were shared by at most so many callers of one process."),
        ("Waits of callers that shared a load", "s", False,
         quantile(0.99, "wait_duration_seconds", CACHE, "place"), "{{place}}",
         "99 % of them waited at most so long, for a load here or elsewhere."),
        ("Hits by place", "reqps", True, per_second(REQUESTS, CACHE, "detail", 'outcome="hit"'), "{{detail}}",
         "local: in this process, as in a memory store or the near tier. store: the store was asked."),
        ("Stale answers by reason", "reqps", True, per_second(REQUESTS, CACHE, "detail", 'outcome="stale"'),
         "{{detail}}",
         "revalidating is usual. load_failed, load_slow, wait_ran_out, no_room and store_failed mean that the "
         "source, a limit or the store is in trouble, and that callers do not notice it."),
        ("Failed requests by reason", "reqps", True, per_second(REQUESTS, CACHE, "detail", 'outcome="failed"'),
         "{{detail}}", "loader: the error of the source. The others are of the cache itself."),
        ("Requests past the cache by reason", "reqps", True,
         per_second(REQUESTS, CACHE, "detail", 'outcome="bypassed"'), "{{detail}}",
         "Each is a load of its own, whose answer is not stored."),
    ]),
    ("Loads", [
        ("Loads by why they started", "cps", True, per_second("loads_started_total", CACHE, "why"), "{{why}}",
         "The number of queries that the source sees. store_failed, private, wait_ran_out and no_key run "
         "without a lease, so other processes may repeat them."),
        ("Loads by how they ended", "cps", True, per_second("load_duration_seconds_count", CACHE, "result"),
         "{{result}}", "failed, timed_out and panicked are faults of the source."),
        ("Time of loads", "s", False, quantile(0.99, "load_duration_seconds", CACHE, "result"), "{{result}}",
         "99 % of the loads took at most so long. Waiters wait as long."),
        ("Running loads", "none", False, "sum by (cache) (%s)" % metric("loads_running", CACHE), "{{cache}}",
         "Loads that have started and not ended. If it only grows, loads hang."),
        ("Flights", "none", False, "sum by (cache) (%s)" % metric("flights", CACHE), "{{cache}}",
         "Keys that the processes load, or whose load in another process they wait for."),
        ("Waiters", "none", False, "sum by (cache) (%s)" % metric("waiters", CACHE), "{{cache}}",
         "Callers that wait for these keys now. Without the cache, each would be a load."),
        ("Queued loads", "none", False, "sum by (cache) (%s)" % metric("loads_queued", CACHE), "{{cache}}",
         "Loads that wait for a permit of max_loads. Their callers wait, or are refused. Until they have it, they "
         "take no lease, and their time does not count."),
        ("Failing keys", "none", False, "sum by (cache) (%s)" % metric("failing_keys", CACHE), "{{cache}}",
         "Keys whose last loads have failed: callers share the failure or get a stale answer, and now and "
         "then one of them may load."),
        ("Refreshes in the background", "cps", True, per_second("refreshes_total", CACHE, "result"),
         "{{result}}", "No caller notices a failed one, until the stale windows end."),
        ("Values that loads have replaced", "cps", True, per_second("refreshed_values_total", CACHE, "value"),
         "{{value}}", "If all writers invalidate, each changed one is an invalidation that is missing."),
        ("Audits", "cps", True, per_second("audits_total", CACHE, "result"), "{{result}}",
         "Hits that were loaded again. stale_served: the answer was old, and no invalidation came. undecided: it was "
         "another one, and an invalidation or another load came."),
        ("Shadow mode", "cps", True, per_second("shadow_total", CACHE, "result"), "{{result}}",
         "What a cache that serves nothing yet would have done."),
        ("Loads by cache", "cps", True, per_second("loads_started_total", CACHE, "cache"), "{{cache}}",
         "Which cache asks its source how often."),
        ("Callers that a limit refused", "cps", True, per_second("refused_total", CACHE, "limit"),
         "{{limit}}", "Each got an error or a stale answer."),
    ]),
    ("Between processes", [
        ("What wakes waiters", "cps", True, per_second("wakes_total", CACHE, "by"), "{{by}}",
         "push: a message of the store, at once. pause: a poll while the load goes on, about five a second. "
         "missed_push: a poll found that the load was over, and no message had told."),
        ("Missed push messages", "percentunit", False, by_cache(
            ("wakes_total", 'by="missed_push"'), ("wakes_total", 'by=~"missed_push|push"')), "{{cache}}",
         "Of the ends of loads that waiters in other processes noticed: those that a poll has found. If most "
         "are, push messages are lost."),
        ("Lag behind the load", "s", False, quantile(0.99, "notice_lag_seconds", CACHE, "cache"), "{{cache}}",
         "How long after the end of a load in another process its waiters had the answer: 99 % at most so "
         "long. A tenth of a second and more means that they poll."),
        ("Leases", "cps", False, per_second("leases_total", CACHE, "event"), "{{event}}",
         "busy: another process loads. lost: the lease ended before the load did."),
        ("Commits", "cps", False, per_second("commits_total", CACHE, "result"), "{{result}}",
         "superseded: a loaded answer was refused, because something newer or an invalidation came first. "
         "unacknowledged: the store failed. unfaithful: the codec would not have given the value again."),
        ("Undecodable answers", "cps", False, per_second("undecodable_total", CACHE, "cache"), "{{cache}}",
         "Stored answers that count as misses, because their type or codec has changed."),
        ("Invalidations", "cps", True, per_second("invalidations_total", CACHE, "event"), "{{event}}",
         "failed: what it was to remove may still be served."),
    ]),
    ("Stores", [
        ("Store is up", "none", False, "min by (store, instance) (%s)" % metric("store_up", STORE),
         "{{store}} {{instance}}", "0 while the circuit breaker is open: the store is not asked."),
        ("Operations", "ops", True, per_second("store_operation_duration_seconds_count", STORE, "operation"),
         "{{operation}}", "What is asked of the store. Copies in the process are not counted."),
        ("Errors", "ops", True, per_second("store_errors_total", STORE, "error"), "{{error}}",
         "Operations that failed. down: not asked, because the circuit breaker is open."),
        ("Outages", "cps", False, per_second("store_outages_total", STORE, "store"), "{{store}}",
         "How often a process has taken the store to be down."),
        ("Stalls", "cps", False, per_second("store_stalls_total", STORE, "store"), "{{store}}",
         "How often a process was not running while the store had to answer: it was stopped, its processors are busy, "
         "or a task blocks its runtime. That is no fault of the store."),
        ("Time of operations", "s", False,
         quantile(0.99, "store_operation_duration_seconds", STORE, "operation"), "{{operation}}",
         "99 % of the operations took at most so long, with their time in the network."),
        ("Connection attempts", "cps", False, per_second("store_connects_total", STORE, "store"),
         "{{store}}", "Many mean that connections break."),
        ("How waiters are woken", "none", True, "sum by (store) (%s)" % metric("store_subscribed", STORE), "{{store}}",
         "How many processes are woken by messages. The waiters of the others poll."),
        ("Push messages", "cps", False, per_second("store_pushes_total", STORE, "store"), "{{store}}",
         "Messages about changes, for waiters and for near copies."),
        ("Invalidations to repeat", "none", False, "sum by (store) (%s)" % metric("store_invalidations_pending", STORE),
         "{{store}}", "Invalidations that have failed or may be lost. Until they are repeated, other processes may read "
         "what they are to remove."),
        ("Requests by server", "reqps", True, per_second("store_node_requests_total", STORE, "node"), "{{node}}",
         "Commands and scripts that each server was sent. In a cluster, one that gets far more than the others "
         "owns a hot key."),
        ("Errors by server", "reqps", True, per_second("store_node_errors_total", STORE, "node, error"),
         "{{node}} {{error}}", "Requests that have failed there. Another server or a later attempt may have "
         "answered them."),
        ("Redirections by server", "reqps", True, per_second("store_node_redirections_total", STORE, "node"),
         "{{node}}", "Requests that a node of a cluster has sent to another one, because slots move."),
        ("Servers that are up", "none", False, "min by (node) (%s)" % metric("store_node_up", STORE), "{{node}}",
         "0 while a process does not ask the server, because its circuit breaker is open."),
        ("Connection attempts by server", "cps", False, per_second("store_node_connects_total", STORE, "node"),
         "{{node}}", "Many mean that connections to this server break."),
        ("Unreadable entries", "cps", False, per_second("store_unreadable_total", STORE, "store"),
         "{{store}}", "Entries that count as misses: damaged, of a newer version, or of another program."),
    ]),
    ("Memory", [
        ("Hits without the store", "ops", False, per_second("outage_hits_total", STORE, "store"), "{{store}}",
         "Lookups that the memory of a process has answered, while the store did not answer."),
        ("Entries without the store", "none", False, "sum by (store) (%s)" % metric("outage_entries", STORE),
         "{{store}}", "Entries that the processes keep meanwhile. They are freed when the store is back."),
        ("Near hits", "ops", False, per_second("near_hits_total", STORE, "store"), "{{store}}",
         "Lookups that a copy in the process answered: the store was not asked."),
        ("Near copies", "none", False, "sum by (store) (%s)" % metric("near_entries", STORE), "{{store}}",
         "Copies in the processes, valid or not."),
        ("Size of near copies", "bytes", False, "sum by (store) (%s)" % metric("near_bytes", STORE),
         "{{store}}", "How much memory they take."),
        ("Near copies removed to make room", "cps", False,
         per_second("near_evictions_total", STORE, "store"), "{{store}}", "If it grows, the near tier is small."),
        ("Time without near copies", "percentunit", False,
         "max by (store) (rate(%s[$__rate_interval]))" % metric("near_disconnected_seconds_total", STORE),
         "{{store}}", "The share of time in which no copy could be served, because changes were not heard."),
        ("Entries of memory stores", "none", False, "sum by (store) (%s)" % metric("store_entries", STORE),
         "{{store}}", "Including expired ones that were not removed yet."),
        ("Size of memory stores", "bytes", False, "sum by (store) (%s)" % metric("store_bytes", STORE),
         "{{store}}", "How much memory they take."),
        ("Entries removed to make room", "cps", False, per_second("store_evictions_total", STORE, "store"),
         "{{store}}", "If it grows, the memory store is small."),
    ]),
    ("Recorded changes", [
        ("Changes that wait", "none", False, "max by (table) (%s)" % metric("changes_pending", CHANGES), "{{table}}",
         "Rows that no follower has applied yet, counted up to 10,000."),
        ("Age of the oldest change", "s", False, "max by (table) (%s)" % metric("changes_oldest_seconds", CHANGES),
         "{{table}}", "How long it has waited. Until it is applied, callers may get what was there before."),
        ("Lag behind the commit", "s", False, quantile(0.99, "changes_lag_seconds", CHANGES, "table"), "{{table}}",
         "99 % of the changes were applied so soon after their commit."),
        ("Applied changes", "cps", True, per_second("changes_applied_total", CHANGES, "table"), "{{table}}",
         "Rows that followers have applied to all stores."),
        ("Changes applied again", "cps", False, per_second("changes_reapplied_total", CHANGES, "table"), "{{table}}",
         "Rows that a store may have lost, since it has connected again."),
        ("Changes that can never be applied", "cps", False, per_second("changes_dead_total", CHANGES, "table"),
         "{{table}}", "Their column failure says why."),
        ("Errors of followers", "cps", True, per_second("changes_errors_total", CHANGES, "of"), "{{of}}",
         "Rounds that the database or a store has failed. The rows wait."),
    ]),
    ("Locks", [
        ("Attempts to lock", "cps", True, per_second("lock_waits_total", LOCKS, "result"), "{{result}}",
         "acquired, or why not: busy and timed_out are waits that ended, left are callers that went away."),
        ("Waits for locks", "s", False, quantile(0.99, "lock_wait_duration_seconds", LOCKS, "kind"),
         "{{kind}}", "99 % of the attempts took at most so long, with or without success."),
        ("Held locks", "none", False, "sum by (kind) (%s)" % metric("lock_held", LOCKS), "{{kind}}",
         "Keys that the processes hold now."),
        ("Renewals", "cps", True, per_second("lock_renewals_total", LOCKS, "result"), "{{result}}",
         "Those that fail are repeated until the lease ends."),
        ("Lost locks", "cps", False, per_second("lock_lost_total", LOCKS, "kind"), "{{kind}}",
         "Holds that ended before their holders released them. Another holder may have begun meanwhile."),
    ]),
]


def with_frame(panel, title, unit, text):
    return panel.title(title).description(text).unit(unit).datasource(SOURCE)


def query(expr):
    return prometheus.Dataquery().expr(expr).ref_id("A").datasource(SOURCE)


def figure(title, unit, expr, steps, text):
    """One number."""
    panel = with_frame(stat.Panel(), title, unit, text).height(4).span(4)
    colours = [Threshold(value=value, color=colour) for colour, value in steps or [("blue", None)]]
    panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(colours))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.color_mode(BigValueColorMode.VALUE).graph_mode(BigValueGraphMode.AREA).decimals(1)
    return panel.with_target(query(expr).range())


def curve(title, unit, adds_up, expr, legend, text):
    """Curves over time, one for each value of a label."""
    panel = with_frame(timeseries.Panel(), title, unit, text).height(8).span(8).min(0)
    panel.fill_opacity(25 if adds_up else 5).line_width(1)
    panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL if adds_up else StackingMode.NONE))
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    place = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    return panel.legend(place.show_legend(True)).with_target(query(expr).legend_format(legend).range())


def choice(name, title, of, label=None):
    """A list of the values of a label, of which any may be chosen."""
    values = dashboard.QueryVariable(name).label(title).datasource(SOURCE)
    values.query("label_values(%s, %s)" % (of, label or name)).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return values.multi(True).include_all(True).all_value(".*").sort(VariableSort.ALPHABETICAL_ASC)


def board():
    board = dashboard.Dashboard("bellwether").uid("bellwether")
    board.description("Caches and their stores: do they help, and what is wrong if they do not?")
    board.tags(["bellwether", "cache"]).time("now-1h", "now").refresh("30s").editable()
    board.tooltip(DashboardCursorSync.CROSSHAIR)
    board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    board.with_variable(choice("job", "Job", "bellwether_requests_total"))
    board.with_variable(choice("instance", "Instance", 'bellwether_requests_total{job=~"$job"}'))
    board.with_variable(choice("cache", "Cache", 'bellwether_requests_total{job=~"$job"}'))
    board.with_variable(choice("store", "Store", '{__name__=~"bellwether_store_.+", job=~"$job"}'))
    board.with_variable(choice("locks", "Locks", 'bellwether_lock_held{job=~"$job"}', "kind"))
    number = count(1)
    for line in STATS:
        board.with_panel(figure(*line).id(next(number)))
    for title, panels in ROWS:
        board.with_row(dashboard.Row(title).id(next(number)))
        for line in panels:
            board.with_panel(curve(*line).id(next(number)))
    return board.build()


if __name__ == "__main__":
    print(json.dumps(board(), cls=JSONEncoder, sort_keys=True, indent=2))
