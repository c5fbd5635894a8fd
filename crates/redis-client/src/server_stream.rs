//! The stream to a server. It notes when bytes arrive, and what the server says that ends a connection at
//! once: the reason is not the broken pipe that follows.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bellwether::adapter::locked;
use redis::{Value, parse_redis_value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::server_error::ServerError;
use super::silence::LastHeard;

/// Bytes to and from a server.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The first error reply of a connection, if its first reply was one.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Vec<u8>>>);

/// A stream that notes them, and when bytes arrive.
pub(super) struct ServerStream {
    pub(super) stream: Box<dyn ByteStream>,
    /// Over this connection, and over any of the node.
    pub(super) heard: [Arc<LastHeard>; 2],
    /// The last write had to wait: the peer has taken nothing for a while.
    pub(super) is_full: bool,
    /// Until the first bytes have arrived.
    pub(super) words: Option<LastWords>,
}

impl LastWords {
    /// Why a login has failed: what the server has said, if that ends a connection.
    pub(super) fn or(&self, error: ServerError) -> ServerError {
        match parse_redis_value(&locked(&self.0)) {
            Ok(Value::ServerError(said)) => {
                let said = ServerError::Reported(said.into());
                if said.ends_connection() { said } else { error }
            }
            _ => error,
        }
    }
}

impl ServerStream {
    fn note(&self) {
        let now = Instant::now();
        self.heard.iter().for_each(|heard| heard.note(now));
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let came = &buffer.filled()[before..];
        if came.len() >= SHORTEST_REPLY {
            self.note();
        }
        if let Some(words) = self.words.take()
            && came.starts_with(b"-")
        {
            *locked(&words.0) = came[..came.len().min(LONGEST)].to_vec();
        }
        Poll::Ready(Ok(()))
    }
}

/// A write that goes on after it had to wait counts, too: the peer has taken bytes.
impl AsyncWrite for ServerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if self.is_full && written.is_ready() {
            self.note();
        }
        self.is_full = written.is_pending();
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The text of protected mode has about a thousand bytes.
const LONGEST: usize = 4096;

/// Fewer bytes are no reply, so they may come from a server that answers a byte at a time.
const SHORTEST_REPLY: usize = 3;
