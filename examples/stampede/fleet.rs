//! The processes: copies of this program that run bursts on order.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Fault;
use crate::messages::{Order, Report, Said, Setup};

/// No burst takes this long. Without a limit, the coordinator would wait for a stopped process for
/// ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// Dropping it kills the processes.
pub(crate) struct Fleet {
    processes: Vec<Process>,
}

struct Process {
    number: u32,
    child: Child,
    orders: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Starts them, and waits until each is connected.
    pub(crate) async fn start(processes: u32, setup: &Setup) -> Result<Self, Fault> {
        let processes = (1..=processes).map(Process::start).collect::<Result<_, _>>()?;
        let mut fleet = Self { processes };
        let ready = fleet.processes.iter_mut().map(|process| process.set_up(setup));
        try_join_all(ready).await?;
        Ok(fleet)
    }

    /// Gives each process its order, and waits for all reports.
    pub(crate) async fn burst(&mut self, orders: &[Order]) -> Result<Vec<Report>, Fault> {
        let bursts =
            self.processes.iter_mut().zip(orders).map(|(process, order)| process.burst(order));
        timeout(PATIENCE, try_join_all(bursts))
            .await
            .map_err(|_| format!("a process did not report within {} s", PATIENCE.as_secs()))?
    }
}

impl Process {
    fn start(number: u32) -> Result<Self, Fault> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process has no pipes".into());
        };
        Ok(Self { number, child, orders, reports: BufReader::new(stdout).lines() })
    }

    async fn set_up(&mut self, setup: &Setup) -> Result<(), Fault> {
        self.send(serde_json::to_string(setup)?).await?;
        match self.hear().await? {
            Said::Ready => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    async fn burst(&mut self, order: &Order) -> Result<Report, Fault> {
        self.send(serde_json::to_string(order)?).await?;
        match self.hear().await? {
            Said::Done(report) => Ok(report),
            other => Err(self.unexpected(other)),
        }
    }

    async fn send(&mut self, mut line: String) -> Result<(), Fault> {
        line.push('\n');
        match self.orders.write_all(line.as_bytes()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended().await),
        }
    }

    async fn hear(&mut self) -> Result<Said, Fault> {
        match self.reports.next_line().await? {
            Some(line) => Ok(serde_json::from_str(&line)?),
            None => Err(self.ended().await),
        }
    }

    async fn ended(&mut self) -> Fault {
        let how = self
            .child
            .wait()
            .await
            .map_or_else(|fault| fault.to_string(), |status| status.to_string());
        format!("process {} ended during the run: {how}", self.number).into()
    }

    fn unexpected(&self, said: Said) -> Fault {
        match said {
            Said::Failed(message) => format!("process {}: {message}", self.number).into(),
            Said::Ready | Said::Done(_) => {
                format!("process {} sent an unexpected reply", self.number).into()
            }
        }
    }
}
