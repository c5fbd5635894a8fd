//! A fleet whose processes ask for the same cold keys at the same moment.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_testkit::servers::RedisServer;

use crate::disturbance::Disturbance;
use crate::fleet::{Worker, start_soon};
use crate::options::{Options, Size};
use crate::worker::{Report, Setup};

/// The most keys of one call of a batch loader.
const KEYS_OF_A_CALL: usize = 1_000;

/// Whether every run has loaded each key once, without an error and an outage.
pub(crate) fn run(options: &Options) -> bool {
    let Options { busy, stop, quota, batch, chain, down, timeout, .. } = options;
    println!(
        "busy {busy}, stop {stop}, quota {quota:?}, batch {batch}, chain {chain}, down {down}, timeout {timeout:?}"
    );
    println!(
        "{:>11} {:>7} {:>8} {:>7} {:>6} {:>7} {:>8} {:>9}  errors",
        "size", "load ms", "loads", "calls", "twice+", "outages", "breakers", "took ms"
    );
    let mut all = Verdict::default();
    let mut server = RedisServer::start();
    for (size, load) in
        options.sizes.iter().flat_map(|size| options.loads.iter().map(move |load| (size, load)))
    {
        let mut verdict = Verdict::default();
        for number in 0..options.runs {
            if !server.is_running() {
                server.restart();
            }
            let reports = one_run(&mut server, options, *size, *load, number);
            if options.verbose {
                print_repeated(&reports);
            }
            verdict.count(Summary::of(&reports, options, *size), options, *size, *load);
        }
        verdict.print(*size, *load);
        all.add(&verdict);
    }
    println!("{}", if all.failed == 0 { "PASS" } else { "FAIL" });
    all.failed == 0
}

fn one_run(
    server: &mut RedisServer,
    options: &Options,
    size: Size,
    load: Duration,
    number: usize,
) -> Vec<Report> {
    server.command(&["FLUSHALL"]);
    let setup = Setup {
        url: server.url(),
        namespace: format!("run-{}x{}-{}-{number}", size.processes, size.keys, load.as_millis()),
        timeout: options.timeout,
        keys: size.keys,
        load,
        batch: options.batch,
        chain: options.chain,
        kib: options.burst_kib,
    };
    let mut workers: Vec<Worker> = (0..size.processes).map(|_| Worker::start(&setup)).collect();
    for worker in &mut workers {
        worker.hear();
    }
    if options.down {
        server.kill();
    }
    let start = start_soon();
    let mut disturbance = Disturbance::default();
    if options.busy {
        disturbance.busy();
    }
    workers.iter_mut().for_each(|worker| worker.begin(start));
    for worker in &workers {
        if options.stop {
            disturbance.stop(worker.pid());
        }
        if let Some(percent) = options.quota {
            disturbance.quota(worker.pid(), percent);
        }
    }
    for worker in &mut workers {
        worker.hear();
    }
    drop(disturbance);
    workers.iter_mut().map(Worker::report).collect()
}

/// Prints by which workers a key was loaded more than once, and when, for a few keys.
fn print_repeated(reports: &[Report]) {
    let mut loads: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (worker, report) in reports.iter().enumerate() {
        for (key, time) in &report.times {
            loads.entry(*key).or_default().push(format!("by {worker} at {time:.0} ms"));
        }
    }
    for (key, loads) in loads.iter().filter(|(_, loads)| loads.len() > 1).take(6) {
        println!("{:>11} key {key} was loaded {}", "", loads.join(", "));
    }
}

/// The reports of a run, together.
struct Summary {
    loads: u64,
    calls: u64,
    /// Keys that were loaded more than once, and those that were not loaded at all.
    repeated: usize,
    missing: usize,
    outages: u64,
    breakers: usize,
    took: f64,
    errors: BTreeMap<String, u64>,
    reasons: BTreeMap<String, u64>,
    is_passed: bool,
}

impl Summary {
    fn of(reports: &[Report], options: &Options, size: Size) -> Self {
        let keys = size.keys * (options.chain + 1);
        let of_key = |key| reports.iter().map(|report| u64::from(report.loads[key])).sum::<u64>();
        let of_keys: Vec<u64> = (0..keys).map(of_key).collect();
        let mut errors = BTreeMap::new();
        let mut reasons = BTreeMap::new();
        for report in reports {
            for (kind, count) in &report.errors {
                *errors.entry(kind.clone()).or_default() += count;
            }
            for (kind, count) in &report.store_errors {
                *errors.entry(format!("store {kind}")).or_default() += count;
            }
            for (reason, count) in &report.reasons {
                *reasons.entry(reason.clone()).or_default() += count;
            }
        }
        let mut summary = Self {
            loads: of_keys.iter().sum(),
            calls: reports.iter().map(|report| u64::from(report.calls)).sum(),
            repeated: of_keys.iter().filter(|loads| **loads > 1).count(),
            missing: of_keys.iter().filter(|loads| **loads == 0).count(),
            outages: reports.iter().map(|report| report.outages).sum(),
            breakers: reports.iter().filter(|report| report.outages > 0).count(),
            took: reports.iter().map(|report| report.took).fold(0.0, f64::max),
            errors,
            reasons,
            is_passed: false,
        };
        // Without Redis, each process loads for itself.
        let per_key = if options.down { size.processes } else { 1 };
        let most = if options.batch {
            // The last call of each process may have fewer keys.
            (size.keys.div_ceil(KEYS_OF_A_CALL) + size.processes - 1) * per_key
        } else {
            keys * per_key
        };
        let is_loaded = summary.loads <= (keys * per_key) as u64 && summary.missing == 0;
        let is_answered = reports.iter().all(|report| report.errors.is_empty());
        summary.is_passed = is_loaded
            && summary.calls <= most as u64
            && is_answered
            && (options.down || summary.outages == 0);
        summary
    }
}

/// How the runs of one size went.
#[derive(Default)]
struct Verdict {
    runs: usize,
    failed: usize,
    loads: Vec<u64>,
    took: Vec<f64>,
}

impl Verdict {
    fn count(&mut self, summary: Summary, options: &Options, size: Size, load: Duration) {
        let Summary { loads, calls, repeated, outages, breakers, took, .. } = summary;
        let store_errors = |kind: &str| kind.starts_with("store ");
        let errors =
            summary.errors.iter().filter(|(kind, _)| options.verbose || !store_errors(kind));
        let errors: Vec<_> = errors.map(|(kind, count)| format!("{kind} {count}")).collect();
        let verdict = if summary.is_passed { "" } else { "  FAIL" };
        println!(
            "{:>11} {:>7} {loads:>8} {calls:>7} {repeated:>6} {outages:>7} {breakers:>8} {took:>9.0}  {}{verdict}",
            format!("{} x {}", size.processes, size.keys),
            load.as_millis(),
            errors.join(", "),
        );
        if options.verbose {
            let reasons = summary.reasons.iter().map(|(reason, count)| format!("{reason} {count}"));
            println!("{:>11} {}", "", reasons.collect::<Vec<_>>().join(", "));
        }
        self.runs += 1;
        self.failed += usize::from(!summary.is_passed);
        self.loads.push(loads);
        self.took.push(took);
    }

    fn print(&mut self, size: Size, load: Duration) {
        self.took.sort_by(f64::total_cmp);
        let Size { processes, keys } = size;
        self.loads.sort_unstable();
        let [least, most] = [self.loads[0], self.loads[self.loads.len() - 1]];
        println!(
            "= {processes} x {keys}, {load:?}: {} of {} runs passed; loads {least} to {most}; took {:.0}, {:.0}, {:.0} ms (least, median, most)",
            self.runs - self.failed,
            self.runs,
            self.took[0],
            self.took[self.took.len() / 2],
            self.took[self.took.len() - 1],
        );
    }

    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.failed += other.failed;
    }
}
