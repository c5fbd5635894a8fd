//! One process of the fleet: takes orders from stdin and reports on stdout.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tower::ServiceExt;

use crate::catalog::Product;
use crate::database::{self, Database};
use crate::loader::{LoadLog, Loader};
use crate::messages::{Answer, Ask, Order, Report, Said, Setup};
use crate::ways::{Catalog, Way};
use crate::{Fault, clock};

/// Reports every error to the coordinator, which prints it once for all processes.
pub(crate) async fn run() -> Result<(), Fault> {
    match serve(orders()).await {
        Ok(()) => Ok(()),
        Err(fault) => say(&Said::Failed(fault.to_string())),
    }
}

async fn serve(mut orders: UnboundedReceiver<String>) -> Result<(), Fault> {
    let setup =
        orders.recv().await.ok_or("only the coordinator starts workers, and stdin has no setup")?;
    let process = Process::open(&serde_json::from_str(&setup)?).await?;
    say(&Said::Ready)?;
    while let Some(order) = orders.recv().await {
        let report = process.burst(serde_json::from_str(&order)?).await?;
        say(&Said::Done(report))?;
    }
    Ok(())
}

/// Lines of stdin. The process exits when they end: the coordinator is gone.
fn orders() -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Sending fails only while the process exits.
            let _ = sender.send(line);
        }
        std::process::exit(0);
    });
    receiver
}

fn say(said: &Said) -> Result<(), Fault> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, said)?;
    stdout.write_all(b"\n")?;
    Ok(stdout.flush()?)
}

struct Process {
    ways: HashMap<Way, Stand>,
}

/// One way, with the log of its loader.
struct Stand {
    catalog: Catalog,
    loads: LoadLog,
}

impl Process {
    async fn open(setup: &Setup) -> Result<Self, Fault> {
        let database = database::open(&setup.database_url, &setup.run, setup.connections).await?;
        let mut ways = HashMap::new();
        for &way in &setup.ways {
            let stand = Stand::open(way, setup, &database).await;
            ways.insert(way, stand.map_err(|fault| format!("{}: {fault}", way.name()))?);
        }
        Ok(Self { ways })
    }

    async fn burst(&self, order: Order) -> Result<Report, Fault> {
        let Stand { catalog, loads } =
            self.ways.get(&order.way).ok_or("the order names a way that was not set up")?;
        let start = Instant::now() + clock::until(order.start);
        let callers = order.skus.iter().zip(0..).map(|(&sku, caller)| {
            let ask = Ask { sku, round: order.round, caller };
            tokio::spawn(call(catalog.clone(), ask, start))
        });
        let answers = join_all(callers).await.into_iter().collect::<Result<_, _>>()?;
        let mut report = Report { answers, loads: loads.take() };
        report.loads.retain(|load| load.ask.round == order.round);
        report.mark_loaders();
        Ok(report)
    }
}

impl Stand {
    async fn open(way: Way, setup: &Setup, database: &Database) -> Result<Self, Fault> {
        let loads = LoadLog::default();
        let loader = Loader::new(way, Arc::clone(database), setup, loads.clone());
        Ok(Self { catalog: way.open(setup, loader).await?, loads })
    }
}

impl Report {
    fn mark_loaders(&mut self) {
        let loaders: HashSet<u32> = self.loads.iter().map(|load| load.ask.caller).collect();
        for (answer, caller) in self.answers.iter_mut().zip(0..) {
            answer.loaded = loaders.contains(&caller);
        }
    }
}

async fn call(catalog: Catalog, ask: Ask, start: Instant) -> Answer {
    sleep_until(start).await;
    let began = Instant::now();
    let answered = catalog.oneshot(ask).await;
    let (at, latency) = (clock::now(), began.elapsed());
    Answer {
        sku: ask.sku,
        at,
        latency_us: latency.as_micros() as u64,
        loaded: false,
        fault: fault(ask.sku, answered),
    }
}

/// The error of an answer, which is correct if all fields of the product are.
fn fault(sku: u32, answered: Result<Product, Fault>) -> Option<String> {
    match answered {
        Ok(product) if product == Product::of(sku) => None,
        Ok(product) => Some(format!("asked for product {sku}, got {product:?}")),
        Err(fault) => Some(fault.to_string()),
    }
}
