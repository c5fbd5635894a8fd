//! A proxy that does to a connection what bad networks and bad servers do.

mod connection;
mod damage;
mod network;
mod replies;
mod resp;

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bellwether::adapter::locked;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub use self::replies::{Replaced, Replacement};

use self::connection::Upstream;
use self::damage::Damage;
use self::network::NetworkFaults;
use self::replies::Replacements;
use crate::servers::free_port;

/// Stands between clients and a server; drops every connection when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    upstream: SocketAddr,
    listener: Arc<Listener>,
    /// Every task ends when this sender is dropped.
    faults: watch::Sender<NetworkFaults>,
    damage: Damage,
    replacements: Replacements,
}

/// A command that a proxy holds back.
#[derive(Debug)]
pub struct HeldCommand {
    upstream: SocketAddr,
    command: Arc<Mutex<Option<Vec<u8>>>>,
}

impl HeldCommand {
    /// Whether it has come.
    pub fn is_held(&self) -> bool {
        locked(&self.command).is_some()
    }

    /// Delivers it over a connection of its own, and waits until the server has executed it.
    pub async fn deliver(&mut self) {
        let command = locked(&self.command).take().expect("a command that has come");
        let mut server = TcpStream::connect(self.upstream).await.expect("a server");
        server.write_all(&command).await.expect("a server that reads");
        server.read_u8().await.expect("a reply");
    }
}

/// `None` while connections are refused. Held for a call of the system, never across an `.await`.
type Listener = Mutex<Option<TcpListener>>;

impl FaultProxy {
    /// Starts to pass everything on to `upstream`, a Redis.
    pub async fn start(upstream: SocketAddr) -> Self {
        Self::start_for(upstream, true).await
    }

    /// Starts to pass everything on to `upstream`, which may use any protocol. Replies cannot be
    /// [replaced](Self::replace) then.
    pub async fn start_raw(upstream: SocketAddr) -> Self {
        Self::start_for(upstream, false).await
    }

    async fn start_for(upstream: SocketAddr, is_resp: bool) -> Self {
        let (listener, address) = loop {
            let address = (Ipv4Addr::LOCALHOST, free_port()).into();
            if let Ok(listener) = listen(address) {
                break (Arc::new(Mutex::new(Some(listener))), address);
            }
        };
        let (faults, watched) = watch::channel(NetworkFaults::default());
        let damage = Damage::default();
        let replacements = Replacements::default();
        let server = upstream;
        let upstream = Upstream {
            address: server,
            faults: watched,
            damage: damage.clone(),
            replacements: replacements.clone(),
            is_resp,
        };
        tokio::spawn(serve(Arc::clone(&listener), upstream));
        Self { address, upstream: server, listener, faults, damage, replacements }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as `redis` and its pools take it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends silence and refusal. What was held back is delivered, as TCP would.
    pub fn pass(&self) {
        let mut listener = locked(&self.listener);
        if listener.is_none() {
            *listener = Some(listen(self.address).expect("no other process takes our port"));
        }
        drop(listener);
        self.faults.send_modify(|faults| {
            faults.to_server.silent = false;
            faults.to_client.silent = false;
        });
    }

    /// Ends all faults. Bytes that are already delayed stay delayed.
    pub fn heal(&self) {
        self.damage.clear();
        self.replacements.clear();
        self.faults.send_modify(|faults| {
            *faults = NetworkFaults { cuts: faults.cuts, ..NetworkFaults::default() };
        });
        self.pass();
    }

    /// Takes connections and bytes, and delivers nothing, either way and not even an end.
    pub fn blackhole(&self) {
        self.faults.send_modify(|faults| {
            faults.to_server.silent = true;
            faults.to_client.silent = true;
        });
    }

    /// Takes connections and bytes and delivers them, but nothing comes back, not even an end.
    pub fn silence(&self) {
        self.faults.send_modify(|faults| faults.to_client.silent = true);
    }

    /// Resets all connections that have carried anything; new ones are not affected.
    pub fn cut(&self) {
        self.faults.send_modify(|faults| faults.cuts += 1);
    }

    /// Answers new connections by a reset; those that exist are not affected.
    pub fn refuse(&self) {
        if let Some(listener) = locked(&self.listener).take() {
            close(listener);
        }
    }

    /// Delays all bytes from now on, with one delay per direction.
    pub fn delay(&self, to_server: Duration, to_client: Duration) {
        self.faults.send_modify(|faults| {
            faults.to_server.delay = to_server;
            faults.to_client.delay = to_client;
        });
    }

    /// Takes new connections, and carries nothing over each for so long, as a busy server does.
    pub fn begin_after(&self, time: Duration) {
        self.faults.send_modify(|faults| faults.begins_after = time);
    }

    /// Limits the bytes per second from the server, from now on.
    pub fn trickle(&self, bytes_per_second: u32) {
        let rate = NonZeroU32::new(bytes_per_second);
        self.faults.send_modify(|faults| faults.to_client.rate = rate);
    }

    /// Delivers so many more bytes of what the server sends, over whichever connection they come,
    /// and resets the one that has had the last of them. It happens once.
    pub fn cut_after(&self, bytes: u64) {
        self.damage.cut_after(bytes);
    }

    /// Changes bits of the n-th byte of what the server sends from now on, counted from 0, over
    /// whichever connection it comes.
    pub fn flip(&self, nth: u64, bits: u8) {
        self.damage.flip(nth, bits);
    }

    /// Drops the push messages (RESP3) of the server from now on. Everything else passes.
    pub fn lose_pushes(&self) {
        self.replacements.lose_pushes(true);
    }

    /// Holds back the next command whose words, with a space between any two, hold `needle`. No
    /// reply comes to it, and later ones pass, so the client waits until its connection is
    /// [cut](Self::cut).
    pub fn hold(&self, needle: impl AsRef<[u8]>) -> HeldCommand {
        let command = self.replacements.hold(needle.as_ref());
        HeldCommand { upstream: self.upstream, command }
    }

    /// Replaces the replies to some commands that come from now on.
    pub fn replace(&self, replacement: Replacement) -> Replaced {
        self.replacements.add(replacement)
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Stops listening at once. Dropping would not do while another test forks: until its child
/// becomes another program, it listens too.
fn close(listener: TcpListener) {
    let listener = listener.into_std().expect("a listener leaves its runtime");
    // Where a listener cannot be shut down, dropping it has to do.
    let _ = std::net::TcpStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both);
}

async fn serve(listener: Arc<Listener>, upstream: Upstream) {
    let mut faults = upstream.faults.clone();
    loop {
        tokio::select! {
            accepted = accept(&listener) => if let Ok((client, _)) = accepted {
                tokio::spawn(upstream.clone().connection(client));
            },
            // A change may have brought a listener, which `accept` does not notice by itself.
            changed = faults.changed() => if changed.is_err() { return },
        }
    }
}

async fn accept(listener: &Listener) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|cx| match &*locked(listener) {
        Some(listener) => listener.poll_accept(cx),
        None => Poll::Pending,
    })
    .await
}
