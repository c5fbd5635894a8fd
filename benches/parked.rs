//! The memory of a waiting caller: how much more is resident once many wait for one key.
//!
//! Each way is measured in processes of its own, so that none finds memory that another has left.
//! Beside our callers stand some that wait for a `tokio::sync::Notify` and nothing more: a task
//! has its price whatever it waits for.

use std::convert::Infallible;
use std::future::pending;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use bellwether::{Error, Key, MemoryStore, ReadThroughLayer};
use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::crowd::Crowd;
use crate::figures::{Spread, Wanted, line};
use crate::paired::Effort;
use crate::product::Product;

pub(crate) fn run(effort: Effort) {
    let (callers, processes) = if effort.is_smoke() { (100, 1) } else { (10_000, 3) };
    let case = format!("{callers} callers");
    for (way, wanted) in WAYS {
        let bytes = (0..processes).map(|_| in_another_process(way, callers));
        let bytes = Spread::of(bytes);
        let Spread { low, median, high } = bytes;
        let verdict = wanted.verdict(bytes);
        let figure = format!("{median:>10.0} bytes   ({low:.0} to {high:.0}){verdict}");
        line("parked", &case, &format!("each of {way}"), &figure, effort.is_smoke());
    }
    let [small, large] =
        [size_of_val(&catalog::<1>().call(SKU)), size_of_val(&catalog::<1024>().call(SKU))];
    for (future, size) in [("of a loader of 1 byte", small), ("of a loader of 1 KiB", large)] {
        line("parked", "AnswerFuture", future, &format!("{size:>10} bytes"), effort.is_smoke());
    }
}

/// The benchmark starts itself with `--park way callers`.
pub(crate) const FLAG: &str = "--park";

const WAYS: [(&str, Wanted); 5] = [
    ("our callers, in tasks", Wanted::AtMost(1024.0)),
    ("our callers, in tasks, of a loader of 1 KiB", Wanted::AtMost(1024.0)),
    ("our callers, in one task", Wanted::AtMost(1024.0)),
    ("Notify, in tasks", Wanted::Nothing),
    ("Notify, in one task", Wanted::Nothing),
];

/// Bytes per caller.
fn in_another_process(way: &str, callers: usize) -> f64 {
    let program = env::current_exe().expect("the path of this program");
    let child = Command::new(program).args([FLAG, way, &callers.to_string()]).output();
    let child = child.expect("this program runs");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let bytes = String::from_utf8_lossy(&child.stdout).trim().parse::<f64>();
    bytes.expect("a number") / callers as f64
}

/// Prints how much the resident memory grows when so many callers begin to wait.
pub(crate) fn measure(way: &str, callers: &str) {
    let callers = callers.parse().expect("a number");
    let runtime = Runtime::new().expect("a runtime");
    let mut catalog = catalog::<1>();
    let never = Arc::new(Notify::new());
    let ask = |_| catalog.call(SKU);
    let wait = |_| Arc::clone(&never).notified_owned();
    let grown = match way {
        "our callers, in tasks" => runtime.block_on(in_tasks(callers, ask)),
        "our callers, in tasks, of a loader of 1 KiB" => {
            let mut catalog = self::catalog::<1024>();
            runtime.block_on(in_tasks(callers, |_| catalog.call(SKU)))
        }
        "our callers, in one task" => runtime.block_on(in_one_task(callers, ask)),
        "Notify, in tasks" => runtime.block_on(in_tasks(callers, wait)),
        "Notify, in one task" => runtime.block_on(in_one_task(callers, wait)),
        _ => panic!("no such way: {way}"),
    };
    println!("{grown}");
    runtime.shutdown_background();
}

async fn in_tasks<F>(callers: usize, wait: impl FnMut(usize) -> F) -> usize
where
    F: Future<Output: Send> + Send + 'static,
{
    let crowd = Crowd::new(callers);
    let before = resident_bytes();
    let mut tasks = JoinSet::new();
    (0..callers).map(wait).for_each(|waiting| drop(tasks.spawn(crowd.join(waiting))));
    crowd.gathered().await;
    resident_bytes() - before
}

async fn in_one_task<F: Future>(callers: usize, wait: impl FnMut(usize) -> F) -> usize {
    let crowd = Crowd::new(callers);
    let before = resident_bytes();
    let waiting = (0..callers).map(wait).map(|waiting| crowd.join(waiting));
    let mut waiting: FuturesUnordered<_> = waiting.collect();
    let gathered = Box::pin(crowd.gathered());
    select(waiting.next(), gathered).await;
    resident_bytes() - before
}

pub(crate) fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("resident pages come second") * PAGE
}

/// A layer whose loader never answers, and keeps so many bytes meanwhile.
fn catalog<const KEPT: usize>()
-> impl Service<u64, Response = Product, Error = Error<Infallible>, Future: Send + 'static> {
    ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &u64| Key::of("item").with(*sku))
        .ttl(Duration::from_secs(60))
        .build()
        .unwrap()
        .layer(service_fn(never::<KEPT>))
}

async fn never<const KEPT: usize>(sku: u64) -> Result<Product, Infallible> {
    let kept = [0_u8; KEPT];
    pending::<()>().await;
    black_box(&kept);
    Ok(Product::new(sku))
}

const SKU: u64 = 42;

/// What `statm` counts in, wherever this is likely to run.
const PAGE: usize = 4096;
