//! Leaks: what is left of a run when nothing is under way any more.

use crate::history::Shared;
use crate::network::NodeId;
use crate::plan::RunPlan;
use crate::process::Process;

/// Notes each as a violation.
pub(crate) fn find_leaks(shared: &Shared, plan: &RunPlan, processes: &[Process]) {
    let (under_way, recorded) = shared.with(|it| (it.under_way, it.recorded.pending()));
    if recorded > 0 {
        shared.violation(format_args!("{recorded} recorded changes were never applied"));
    }
    // Those of killed processes have not ended.
    let killed = processes.iter().any(|it| it.caller.process.1 > 0);
    if under_way > 0 && !killed {
        shared.violation(format_args!("{under_way} operations have not ended"));
    }
    for Process { host, caller, store, .. } in processes {
        let (flights, pending) = (caller.cache.in_flight(), store.stats().replay.pending);
        if flights > 0 || pending > 0 || host.tasks() > plan.topology.tasks() {
            let tasks = host.tasks();
            shared.violation(format_args!(
                "{:?} has {flights} flights, {pending} pending invalidations and {tasks} tasks",
                caller.process
            ));
        }
    }
    for (process, (node, _)) in shared.network.with(|state| state.silent.clone()) {
        shared.violation(format_args!("{process} uses a link to {node} that loses all"));
    }
    let primaries = shared.network.with(|state| state.primaries());
    primaries.iter().for_each(|node| find_leases(shared, *node));
    let open = shared.network.with(|state| state.connections());
    for (node, connections) in open.into_iter().enumerate() {
        let of_one = plan.topology.connections(node, primaries.contains(&node));
        if connections > of_one * processes.len() {
            shared.violation(format_args!("server {node} has {connections} connections"));
        }
    }
}

fn find_leases(shared: &Shared, node: NodeId) {
    let leases = shared.network.with(|state| {
        let time = state.time(node);
        let server = state.nodes[node].server.as_ref().expect("it runs");
        let names = server.names(time);
        names.iter().filter(|name| name.ends_with(b":lease")).count()
    });
    if leases > 0 {
        shared.violation(format_args!("server {node} has {leases} leases"));
    }
}
