//! One connection: both its directions, and its end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::damage::Damage;
use super::network::{DirectionFaults, NetworkFaults};
use super::replies::{Inspect, Replacements, inspectors};

/// How many reads one direction may hold while they are delayed.
const HELD: usize = 1024;

/// How often a second of a trickle is divided, if there are enough bytes.
const PIECES: u32 = 100;

/// The target of connections, and their faults.
#[derive(Clone)]
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    pub(super) faults: watch::Receiver<NetworkFaults>,
    pub(super) damage: Damage,
    pub(super) replacements: Replacements,
    pub(super) is_resp: bool,
}

/// The connection is reset, and does not end as TCP would.
struct Reset;

impl Upstream {
    pub(super) async fn connection(self, mut client: TcpStream) {
        let begun = self.faults.borrow().cuts;
        let mut watched = self.faults.clone();
        let is_reset = tokio::select! {
            carried = self.carry(&mut client) => matches!(carried, Ok(Err(Reset))),
            cut = watched.wait_for(|faults| faults.cuts > begun) => cut.is_ok(),
        };
        if is_reset {
            // Closed without lingering, a connection is reset instead of ended.
            let _ = client.set_zero_linger();
        }
    }

    async fn carry(mut self, client: &mut TcpStream) -> io::Result<Result<(), Reset>> {
        let begins_after = self.faults.borrow().begins_after;
        sleep(begins_after).await;
        passing(&mut self.faults, |faults| faults.to_server).await;
        let mut server = TcpStream::connect(self.address).await?;
        // Nagle's algorithm would add delays to those that a test sets.
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (commands, replies) = inspectors(self.replacements, self.is_resp);
        let [forth, back] = [(); 2].map(|()| mpsc::channel(HELD));
        let to_server = Direction {
            to: to_server,
            faults: self.faults.clone(),
            direction: |faults| faults.to_server,
            damage: None,
        };
        let to_client = Direction {
            to: to_client,
            faults: self.faults,
            direction: |faults| faults.to_client,
            damage: Some(self.damage),
        };
        let all = tokio::try_join!(
            take(from_client, forth.0, commands),
            to_server.deliver(forth.1),
            take(from_server, back.0, replies),
            to_client.deliver(back.1),
        );
        Ok(all.map(|_| ()))
    }
}

type Held = (Instant, Vec<u8>);

async fn take(
    mut from: impl AsyncRead + Unpin,
    held: mpsc::Sender<Held>,
    mut inspector: impl Inspect,
) -> Result<(), Reset> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        // A reset is delivered as an end: it must not overtake what is held.
        let length = from.read(&mut bytes).await.unwrap_or(0);
        let passing = match length {
            0 => inspector.rest(),
            length => inspector.inspect(&bytes[..length]),
        };
        if passing.is_empty() && length > 0 {
            continue;
        }
        if held.send((Instant::now(), passing)).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

/// One direction, seen from its end.
struct Direction<W> {
    to: W,
    faults: watch::Receiver<NetworkFaults>,
    direction: fn(&NetworkFaults) -> DirectionFaults,
    damage: Option<Damage>,
}

impl<W: AsyncWrite + Unpin> Direction<W> {
    /// Delivers everything until its end, which is delivered like everything before it.
    async fn deliver(mut self, mut release: mpsc::Receiver<Held>) -> Result<(), Reset> {
        while let Some((taken, mut bytes)) = release.recv().await {
            sleep_until(taken + self.direction().delay).await;
            passing(&mut self.faults, self.direction).await;
            let ends = self.damage.as_ref().is_some_and(|damage| damage.befall(&mut bytes));
            if self.write(&bytes).await.is_err() {
                return Ok(());
            }
            if ends {
                return Err(Reset);
            }
        }
        passing(&mut self.faults, self.direction).await;
        let _ = self.to.shutdown().await;
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = match self.direction().rate.map(u32::from) {
                None => rest.len(),
                Some(rate) => {
                    let length = (rate / PIECES).max(1);
                    sleep(Duration::from_secs(1) * length / rate).await;
                    rest.len().min(length as usize)
                }
            };
            let (piece, later) = rest.split_at(length);
            self.to.write_all(piece).await?;
            rest = later;
        }
        Ok(())
    }

    fn direction(&self) -> DirectionFaults {
        (self.direction)(&self.faults.borrow())
    }
}

/// Waits until a direction is not silent.
async fn passing(
    faults: &mut watch::Receiver<NetworkFaults>,
    direction: fn(&NetworkFaults) -> DirectionFaults,
) {
    // An error means that the proxy was dropped, which ends the connection as a whole.
    let _ = faults.wait_for(|faults| !direction(faults).silent).await;
}
