//! The two tasks of a link, which move its bytes up to the server and down to the process.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::select;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::Network;
use super::link::{Fate, LinkId};
use crate::time_costs::READ_BUFFER;

/// Opens a link of a process to the server at an address.
pub(crate) async fn connect(
    network: Network,
    process: usize,
    to: String,
) -> io::Result<DuplexStream> {
    let node = network.with(|state| state.nodes.iter().position(|node| node.address == to));
    let node = node.ok_or(io::ErrorKind::HostUnreachable)?;
    // No packet of the handshake gets through before.
    while let Some(wait) = network.with(|state| state.held_up(process, node, None)) {
        sleep(wait).await;
    }
    let (ours, theirs) = duplex(BUFFER);
    network.with(|state| {
        let server = state.nodes[node].server.as_mut().ok_or(io::ErrorKind::ConnectionRefused)?;
        let task = LinkTask { network: network.clone(), client: (node, server.connect()) };
        let (replies, queue) = unbounded_channel();
        let (reader, writer) = split(theirs);
        let ended = Arc::<Notify>::default();
        let runtime = &network.0.runtime;
        let tasks = [
            runtime.spawn(task.clone().send_up(reader, Arc::clone(&ended))).abort_handle(),
            runtime.spawn(task.clone().send_down(queue, writer)).abort_handle(),
        ];
        state.open(task.client, process, replies, tasks, ended);
        Ok(ours)
    })
}

#[derive(Clone)]
struct LinkTask {
    network: Network,
    client: LinkId,
}

impl LinkTask {
    async fn send_up(self, mut reader: ReadHalf<DuplexStream>, ended: Arc<Notify>) {
        let Self { network, client } = &self;
        let mut buffer = vec![0; READ_BUFFER];
        let mut received = Vec::new();
        'link: loop {
            let read = select! {
                biased;
                read = reader.read(&mut buffer) => read,
                () = ended.notified() => continue,
            };
            let Ok(length @ 1..) = read else { break };
            received.extend_from_slice(&buffer[..length]);
            self.delay().await;
            while let Some(bytes) = network.with(|state| state.next_message(&mut received)) {
                let _under_way = BytesUnderWay::begin(network);
                self.work().await;
                self.pass(true).await;
                self.keep_pace(true, bytes.len()).await;
                if network.with(|state| state.loses(*client, &bytes)) {
                    continue;
                }
                if !network.with(|state| state.deliver(*client, &bytes)) {
                    break 'link;
                }
            }
        }
        self.delay().await;
        self.pass(true).await;
        if !network.with(|state| state.is_any(*client, Fate::swallows_requests)) {
            network.with(|state| state.cut(*client));
        }
    }

    async fn send_down(
        self,
        mut queue: UnboundedReceiver<Vec<u8>>,
        mut writer: WriteHalf<DuplexStream>,
    ) {
        let Self { network, client } = &self;
        let mut sent = Vec::new();
        'link: while let Some(bytes) = queue.recv().await {
            sent.extend(bytes);
            while let Ok(more) = queue.try_recv() {
                sent.extend(more);
            }
            self.delay().await;
            while let Some(bytes) = network.with(|state| state.next_message(&mut sent)) {
                self.pass(false).await;
                let _under_way = BytesUnderWay::begin(network);
                self.work().await;
                let is_cut = network.with(|state| state.is_doomed(*client, Fate::CutReply));
                let length = if is_cut { bytes.len() / 2 } else { bytes.len() };
                if self.write(&mut writer, &bytes[..length]).await.is_err() || is_cut {
                    break 'link;
                }
            }
        }
        network.with(|state| state.cut(*client));
    }

    /// Writes to a process, as fast as the bytes pass.
    async fn write(
        &self,
        writer: &mut WriteHalf<DuplexStream>,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let pace = self.network.with(|state| state.pace(self.client, false));
            let most = pace.map_or(usize::MAX, |pace| pace.bytes);
            let (part, rest) = bytes.split_at(bytes.len().min(most));
            self.keep_pace(false, part.len()).await;
            writer.write_all(part).await?;
            bytes = rest;
        }
        Ok(())
    }

    /// Waits as long as these bytes take to pass.
    async fn keep_pace(&self, is_up: bool, bytes: usize) {
        let wait = self.network.with(|state| state.passes_after(self.client, is_up, bytes));
        if wait > 0 {
            sleep(Duration::from_millis(wait)).await;
        }
    }

    /// Waits until a process has handled a message. Those of its links take turns.
    async fn work(&self) {
        while let Some(is_done) = self.network.with(|state| state.work(self.client)) {
            if is_done {
                return yield_now().await;
            }
            sleep(TICK).await;
        }
    }

    async fn delay(&self) {
        let delay = self.network.with(|state| state.draw_delay(self.client));
        if delay > 0 {
            let _under_way = BytesUnderWay::begin(&self.network);
            sleep(Duration::from_millis(delay)).await;
        }
    }

    /// Waits until bytes get through.
    async fn pass(&self, is_up: bool) {
        while let Some(wait) = self.network.with(|state| state.blocked(self.client, is_up)) {
            sleep(wait).await;
        }
    }
}

/// Bytes of a link are under way, until this is dropped.
struct BytesUnderWay(Network);

impl BytesUnderWay {
    fn begin(network: &Network) -> Self {
        network.with(|state| state.under_way += 1);
        Self(network.clone())
    }
}

impl Drop for BytesUnderWay {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.under_way -= 1;
            state.used_at = state.now;
        });
    }
}

/// The bytes that are under way in one direction at most.
const BUFFER: usize = 64 * 1024;

const TICK: Duration = Duration::from_millis(1);
