//! A proxy that does to a connection what a bad network does.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::redis_server::free_port;

/// How many reads one direction may hold while they are delayed.
const HELD: usize = 1024;

/// Stands between clients and a server; drops every connection when it is dropped.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    listener: Arc<Listener>,
    /// Every task ends when this sender is dropped.
    faults: watch::Sender<Faults>,
}

/// `None` while connections are refused. Held for a call of the system, never across an `.await`.
type Listener = Mutex<Option<TcpListener>>;

#[derive(Clone, Debug, Default)]
struct Faults {
    silent: bool,
    /// How often all connections were cut; those that began before the last cut must end.
    cuts: u64,
    to_server: Duration,
    to_client: Duration,
}

impl FaultProxy {
    /// Starts to pass everything on to `upstream`.
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let (listener, address) = loop {
            let address = (Ipv4Addr::LOCALHOST, free_port()).into();
            if let Ok(listener) = listen(address) {
                break (Arc::new(Mutex::new(Some(listener))), address);
            }
        };
        let (faults, watched) = watch::channel(Faults::default());
        tokio::spawn(serve(Arc::clone(&listener), upstream, watched));
        Self { address, listener, faults }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as `redis` and its pools take it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends silence and refusal. What was held back is delivered, as TCP would.
    pub(crate) fn pass(&self) {
        let mut listener = lock(&self.listener);
        if listener.is_none() {
            *listener = Some(listen(self.address).expect("nobody else takes our port"));
        }
        drop(listener);
        self.faults.send_modify(|faults| faults.silent = false);
    }

    /// Takes connections and bytes, and delivers nothing, either way and not even an end.
    pub(crate) fn blackhole(&self) {
        self.faults.send_modify(|faults| faults.silent = true);
    }

    /// Resets all connections that have carried anything; new ones are not affected.
    pub(crate) fn cut(&self) {
        self.faults.send_modify(|faults| faults.cuts += 1);
    }

    /// Answers new connections by a reset; those that exist are not affected.
    pub(crate) fn refuse(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            close(listener);
        }
    }

    /// Holds back what is delivered from now on, each way by its own duration.
    pub(crate) fn delay(&self, to_server: Duration, to_client: Duration) {
        self.faults.send_modify(|faults| {
            faults.to_server = to_server;
            faults.to_client = to_client;
        });
    }
}

fn lock(listener: &Listener) -> MutexGuard<'_, Option<TcpListener>> {
    listener.lock().unwrap_or_else(PoisonError::into_inner)
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

async fn serve(listener: Arc<Listener>, upstream: SocketAddr, mut faults: watch::Receiver<Faults>) {
    loop {
        tokio::select! {
            accepted = accept(&listener) => if let Ok((client, _)) = accepted {
                tokio::spawn(connection(client, upstream, faults.clone()));
            },
            // A change may have brought a listener, which `accept` does not notice by itself.
            changed = faults.changed() => if changed.is_err() { return },
        }
    }
}

async fn accept(listener: &Listener) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|cx| match &*lock(listener) {
        Some(listener) => listener.poll_accept(cx),
        None => Poll::Pending,
    })
    .await
}

async fn connection(mut client: TcpStream, upstream: SocketAddr, faults: watch::Receiver<Faults>) {
    let begun = faults.borrow().cuts;
    let mut watched = faults.clone();
    tokio::select! {
        _ = carry(&mut client, upstream, faults) => {}
        cut = watched.wait_for(|faults| faults.cuts > begun) => if cut.is_ok() {
            // Closed without lingering, a connection is reset instead of ended.
            let _ = client.set_zero_linger();
        }
    }
}

async fn carry(
    client: &mut TcpStream,
    upstream: SocketAddr,
    mut faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    passing(&mut faults).await;
    let mut server = TcpStream::connect(upstream).await?;
    // What it delays, it delays by what it was told to, and by nothing else.
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::join!(
        pump(from_client, to_server, faults.clone(), |faults| faults.to_server),
        pump(from_server, to_client, faults.clone(), |faults| faults.to_client),
    );
    Ok(())
}

/// Carries one direction until its end, which is delivered like everything before it.
async fn pump(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    faults: watch::Receiver<Faults>,
    delay: fn(&Faults) -> Duration,
) {
    let (held, release) = mpsc::channel(HELD);
    tokio::join!(take(from, held), deliver(release, to, faults, delay));
}

async fn take(mut from: impl AsyncRead + Unpin, held: mpsc::Sender<(Instant, Vec<u8>)>) {
    loop {
        let mut bytes = vec![0; 16 * 1024];
        // A reset is delivered as an end: it must not overtake what is held.
        let length = from.read(&mut bytes).await.unwrap_or(0);
        bytes.truncate(length);
        if length == 0 || held.send((Instant::now(), bytes)).await.is_err() {
            return;
        }
    }
}

async fn deliver(
    mut release: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: impl AsyncWrite + Unpin,
    mut faults: watch::Receiver<Faults>,
    delay: fn(&Faults) -> Duration,
) {
    while let Some((taken, bytes)) = release.recv().await {
        let wait = delay(&faults.borrow());
        sleep_until(taken + wait).await;
        passing(&mut faults).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    passing(&mut faults).await;
    let _ = to.shutdown().await;
}

/// Waits for the end of a silence.
async fn passing(faults: &mut watch::Receiver<Faults>) {
    // An error means that the proxy was dropped, which ends the connection as a whole.
    let _ = faults.wait_for(|faults| !faults.silent).await;
}
