//! Following a body that goes through: whether it ends in time, and what it was.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::joined::JoinedFrames;

/// Follows a body that goes through to one caller, and tells once what it turned out to be. A body
/// that its caller drops before either is known is nothing.
pub struct Follow {
    /// How many more bytes it may have.
    left: usize,
    /// When it has to be complete.
    deadline: Pin<Box<Sleep>>,
    copy: Option<Copy>,
    tell: Option<Tell>,
}

#[derive(Default)]
struct Copy {
    data: JoinedFrames,
    trailers: Option<HeaderMap>,
}

/// What a body turned out to be.
#[derive(Debug)]
pub enum Followed {
    /// It ended in time. What it was, if a copy was wanted.
    Complete {
        /// Its data.
        data: Bytes,
        /// Its trailer fields.
        trailers: Option<HeaderMap>,
    },
    /// It is too large, or takes too long.
    Unfinished,
}

type Tell = Box<dyn FnOnce(Followed) + Send + Sync>;

impl Follow {
    /// Follows a body that should end before `deadline` after at most so many bytes. To be called
    /// within a runtime.
    pub fn new(
        most: usize,
        deadline: Instant,
        tell: impl FnOnce(Followed) + Send + Sync + 'static,
    ) -> Self {
        let deadline = Box::pin(sleep_until(deadline));
        Self { left: most, deadline, copy: None, tell: Some(Box::new(tell)) }
    }

    /// Copies the body on its way.
    pub fn copying(self) -> Self {
        Self { copy: Some(Copy::default()), ..self }
    }

    /// Sees a frame that is given out.
    pub(super) fn saw(&mut self, frame: &Frame<Bytes>) {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match self.left.checked_sub(length) {
            Some(left) => self.left = left,
            None => return self.tell(Followed::Unfinished),
        }
        if let Some(copy) = &mut self.copy {
            if let Some(data) = frame.data_ref() {
                copy.data.push(data.clone(), 0);
            }
            if let Some(more) = frame.trailers_ref() {
                copy.trailers.get_or_insert_default().extend(more.clone());
            }
        }
    }

    /// Hears that the body has ended.
    pub(super) fn ended(&mut self) {
        let Copy { data, trailers } = self.copy.take().unwrap_or_default();
        self.tell(Followed::Complete { data: data.into_bytes(), trailers });
    }

    /// Sees to it that the deadline is noticed though no frame comes.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) {
        if self.tell.is_some()
            && let Poll::Ready(()) = self.deadline.as_mut().poll(cx)
        {
            self.tell(Followed::Unfinished);
        }
    }

    /// Hears that the body broke off.
    pub(super) fn broke_off(&mut self) {
        (self.copy, self.tell) = (None, None);
    }

    fn tell(&mut self, followed: Followed) {
        self.copy = None;
        if let Some(tell) = self.tell.take() {
            tell(followed);
        }
    }
}

/// Shows no content.
impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("left", &self.left).finish_non_exhaustive()
    }
}
