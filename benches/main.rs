//! What this crate costs, as ratios.
//!
//! ```text
//! cargo bench -p bellwether-benches                            everything, in about two minutes
//! cargo bench -p bellwether-benches -- redis      the sections with that word in their name
//! cargo bench -p bellwether-benches -- tags --members=1000000    a tag with so many entries
//! cargo bench -p bellwether-benches -- tracking --seconds=300 --rows=60000 --tags=1000
//! cargo bench -p bellwether-benches --features handover -- handover      of locks on all kinds of servers
//! ```
//!
//! Machines differ and are shared, so no figure here is to be compared with one of another run.
//! Every contender meets its baseline in the same minute, in many short rounds and by turns, and
//! the result is the median of the rounds' own ratios ([`paired`]). Where a figure has a limit to
//! keep, its line says so, and whether it was kept.
//!
//! Without `--bench`, as `cargo test --benches` calls it, everything is done once and nothing is
//! measured.

mod bursts;
mod bursts_in_cluster;
mod compression;
mod cpu;
mod crowd;
mod direct_calls;
mod envelope;
mod figures;
#[cfg(feature = "handover")]
mod handover;
mod hits_in_cluster;
mod hits_in_memory;
mod hits_in_redis;
mod hits_near;
mod hits_over_http;
mod kept;
mod observed;
mod outage;
mod paired;
mod parked;
mod parts_of_a_hit;
mod pool;
mod product;
mod statistics;
mod tag_members;
mod tags;
mod tracking;

use std::env;

use paired::Effort;

type Section = fn(Effort);

const SECTIONS: &[(&str, Section)] = &[
    ("memory", hits_in_memory::run),
    ("direct", direct_calls::run),
    ("redis", hits_in_redis::run),
    ("cluster", hits_in_cluster::run),
    ("cluster-bursts", bursts_in_cluster::run),
    ("near", hits_near::run),
    ("tracking", tracking::run),
    ("http", hits_over_http::run),
    ("parts", parts_of_a_hit::run),
    ("pool", pool::run),
    ("bursts", bursts::run),
    ("envelope", envelope::run),
    ("compression", compression::run),
    ("parked", parked::run),
    ("kept", kept::run),
    ("outage", outage::run),
    ("stats", statistics::run),
    ("observed", observed::run),
    ("tags", tags::run),
    #[cfg(feature = "handover")]
    ("handover", handover::run),
];

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [parked::FLAG, way, callers] => return parked::measure(way, callers),
        [kept::FLAG, entries] => return kept::measure(entries),
        _ => {}
    }
    // A test runner asks for the names of tests: there are none.
    if args.iter().any(|arg| arg == "--list") {
        return;
    }
    let is_bench =
        args.iter().any(|arg| arg == "--bench") && !args.iter().any(|arg| arg == "--test");
    let effort = if is_bench { Effort::FULL } else { Effort::SMOKE };
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, run) in SECTIONS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            run(effort);
        }
    }
}
