//! What a server says that ends a connection at once: the reason is not the broken pipe that follows.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bellwether::adapter::locked;
use redis::{Value, parse_redis_value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::server_error::ServerError;
use super::silence::ByteStream;

/// The first error reply of a connection, if its first reply was one.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Vec<u8>>>);

/// A stream that notes them.
pub(super) struct WordsStream {
    stream: Box<dyn ByteStream>,
    /// Until the first bytes have arrived.
    words: Option<LastWords>,
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

    pub(super) fn noted_of(&self, stream: Box<dyn ByteStream>) -> Box<dyn ByteStream> {
        Box::new(WordsStream { stream, words: Some(self.clone()) })
    }
}

impl AsyncRead for WordsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if let Some(words) = self.words.take() {
            let came = &buffer.filled()[before..];
            if came.starts_with(b"-") {
                *locked(&words.0) = came[..came.len().min(LONGEST)].to_vec();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WordsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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
