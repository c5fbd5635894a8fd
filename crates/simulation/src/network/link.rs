//! A link: a connection of a process to a server, and what becomes of it.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use crate::host::Millis;
use crate::server::ClientId;
use crate::time_costs::{Micros, Pace};

/// The place of a server in the network.
pub(crate) type NodeId = usize;

/// A link, by its server and its number there.
pub(super) type LinkId = (NodeId, ClientId);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) process: usize,
    pub(super) replies: UnboundedSender<Vec<u8>>,
    pub(super) tasks: [AbortHandle; 2],
    /// Its process has been killed.
    pub(super) ended: Arc<Notify>,
    pub(super) is_slow: bool,
    pub(super) opened_at: Millis,
    pub(super) fate: Option<Fate>,
    /// What has arrived at a server that needs time, and is not read.
    pub(super) inbox: Vec<u8>,
    /// Until when the bytes so far take to pass, in both directions.
    paced_until: [Micros; 2],
    /// When its process has first and last sent what did not arrive, without a long pause between.
    in_vain: Option<[Millis; 2]>,
}

/// What becomes of a link with the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ends in the middle of what the process sends.
    CutRequest,
    /// It ends after the server has executed what it has received, before the reply.
    LoseReply,
    /// It ends in the middle of a reply.
    CutReply,
    /// Nothing arrives any more, in either direction, and it does not end.
    HalfOpen,
    /// Nothing arrives at the server any more. What that says does.
    Deaf,
    /// Nothing arrives at the process any more. The server executes its requests.
    Mute,
}

impl Fate {
    pub(super) fn swallows_requests(self) -> bool {
        matches!(self, Self::HalfOpen | Self::Deaf)
    }

    pub(super) fn swallows_replies(self) -> bool {
        matches!(self, Self::HalfOpen | Self::Mute)
    }
}

impl Link {
    pub(super) fn new(
        process: usize,
        replies: UnboundedSender<Vec<u8>>,
        tasks: [AbortHandle; 2],
        ended: Arc<Notify>,
        is_slow: bool,
        opened_at: Millis,
    ) -> Self {
        Self {
            process,
            replies,
            tasks,
            ended,
            is_slow,
            opened_at,
            fate: None,
            inbox: Vec::new(),
            paced_until: [0; 2],
            in_vain: None,
        }
    }

    /// For how long more bytes are under way, at this pace.
    pub(super) fn pass(&mut self, is_up: bool, bytes: usize, pace: Pace, now: Millis) -> Millis {
        let now = 1_000 * now;
        let until = &mut self.paced_until[usize::from(is_up)];
        // A part of a tick is not waited for, and made up for by the next bytes.
        let takes = 1_000 * pace.each * bytes as Micros / pace.bytes as Micros;
        *until = (*until).max(now.saturating_sub(1_000)) + takes;
        until.saturating_sub(now).div_ceil(1_000)
    }

    /// Its process sends what gets no reply. Returns since when it does so, without a long pause and without
    /// standing still until it `resumed`.
    pub(super) fn send_in_vain(&mut self, now: Millis, resumed: Millis) -> Millis {
        // A process that has stood still has noticed nothing. What it sent before may have come meanwhile.
        let begin = |[first, last]: [Millis; 2]| match last + PAUSE < now || first < resumed {
            true => now,
            false => first,
        };
        let first = self.in_vain.map_or(now, begin);
        self.in_vain = Some([first, now]);
        first
    }
}

/// If a process has sent nothing for so long, it may have stood still.
const PAUSE: Millis = 1_500;
