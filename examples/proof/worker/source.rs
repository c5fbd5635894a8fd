//! The source, as a worker asks it: over the socket of the main process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fmt, io};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};

use crate::clock::now;
use crate::kinds::RowKey;
use crate::locked::locked;
use crate::messages::{Ask, Order, Report};
use crate::row::{Row, Versions};

/// The source does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceDown;

impl fmt::Display for SourceDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the source is down")
    }
}

impl std::error::Error for SourceDown {}

/// Where the answer to a question goes.
type Answer = oneshot::Sender<Option<Vec<Versions>>>;

/// The connection to the main process. A handle.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    reports: mpsc::UnboundedSender<Report>,
    /// Held to put one in or to take one out.
    asked: Arc<Mutex<HashMap<u64, Answer>>>,
    count: Arc<AtomicU64>,
    worker: u32,
}

impl Source {
    /// Connects, and gives the orders that come.
    pub(crate) async fn connect(
        socket: &str,
        worker: u32,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Order>)> {
        let (from, mut to) = UnixStream::connect(socket).await?.into_split();
        let (reports, mut reported) = mpsc::unbounded_channel();
        let (orders, ordered) = mpsc::unbounded_channel();
        let source = Self { reports, asked: Arc::default(), count: Arc::default(), worker };
        tokio::spawn(async move {
            while let Some(report) = reported.recv().await {
                let mut lines = line(&report);
                while let Ok(more) = reported.try_recv() {
                    lines += &line(&more);
                }
                if to.write_all(lines.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(source.clone().listen(from, orders));
        Ok((source, ordered))
    }

    pub(crate) fn report(&self, report: Report) {
        // Without a main process, this process is about to end.
        let _ = self.reports.send(report);
    }

    /// Loads a row.
    pub(crate) async fn load(self, key: RowKey) -> Result<Row, SourceDown> {
        let mut rows = self.load_many(vec![key]).await?;
        rows.pop().ok_or(SourceDown)
    }

    /// Loads rows, in their order.
    pub(crate) async fn load_many(self, keys: Vec<RowKey>) -> Result<Vec<Row>, SourceDown> {
        let began = now();
        let ids = keys.iter().map(|key| key.id()).collect();
        let versions = self.ask(Ask::Load { keys: ids }).await?;
        let times = (began, now());
        let rows = keys.into_iter().zip(versions);
        Ok(rows.map(|(key, versions)| Row::new(key.id(), versions, times, self.worker)).collect())
    }

    /// Changes rows, and gives the versions that they have now.
    pub(crate) async fn change(&self, keys: &[RowKey]) -> Result<Vec<Versions>, SourceDown> {
        self.ask(Ask::Change { keys: keys.iter().map(|key| key.id()).collect() }).await
    }

    /// Changes all rows of a group, and gives the version that it has now.
    pub(crate) async fn change_group(&self, group: u64) -> Result<u64, SourceDown> {
        let versions = self.ask(Ask::ChangeGroup { group }).await?;
        versions.first().map(|versions| versions.group).ok_or(SourceDown)
    }

    async fn ask(&self, ask: Ask) -> Result<Vec<Versions>, SourceDown> {
        let id = self.count.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        locked(&self.asked).insert(id, answer);
        self.report(Report::Ask { id, ask });
        answered.await.ok().flatten().ok_or(SourceDown)
    }

    async fn listen(self, from: OwnedReadHalf, orders: mpsc::UnboundedSender<Order>) {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line).expect("an order") {
                Order::Answer { id, rows } => {
                    let answer = locked(&self.asked).remove(&id);
                    let _ = answer.map(|answer| answer.send(rows));
                }
                order => _ = orders.send(order),
            }
        }
        // The main process has gone.
        std::process::exit(0);
    }
}

fn line(report: &Report) -> String {
    serde_json::to_string(report).expect("it is JSON") + "\n"
}
