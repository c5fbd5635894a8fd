//! Which reply is for which command, and those that are replaced.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::resp::{self, Length};
use bellwether::adapter::locked;

/// Has a reply of ours in the place of the server's.
#[derive(Clone, Debug)]
pub struct Replacement {
    needle: Vec<u8>,
    reply: Vec<u8>,
    is_done: bool,
    left: usize,
    count: Arc<AtomicUsize>,
}

/// Counts how often a reply was replaced.
#[derive(Clone, Debug)]
pub struct Replaced(Arc<AtomicUsize>);

impl Replacement {
    /// Every command whose words, with a space between any two, hold `needle` is done by the
    /// server, and answered by `reply`: bytes as they are sent.
    pub fn of(needle: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) -> Self {
        let needle = needle.as_ref().to_vec();
        let reply = reply.as_ref().to_vec();
        Self { needle, reply, is_done: true, left: usize::MAX, count: Arc::default() }
    }

    /// The same, but they are not done, as by a server that refuses.
    pub fn refusal(needle: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) -> Self {
        Self { is_done: false, ..Self::of(needle, reply) }
    }

    /// Replaces the replies to this many commands, and no later ones.
    pub fn times(self, times: usize) -> Self {
        Self { left: times, ..self }
    }
}

impl Replaced {
    /// How often it was replaced so far.
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// The replacements of a proxy, and the commands that it holds back.
#[derive(Clone, Debug, Default)]
pub(super) struct Replacements {
    /// In the order in which they were said.
    all: Arc<Mutex<Vec<Replacement>>>,
    holds: Arc<Mutex<Vec<Hold>>>,
    loses_pushes: Arc<AtomicBool>,
}

impl Replacements {
    pub(super) fn add(&self, replacement: Replacement) -> Replaced {
        // Of its own, so that one replacement can be said several times.
        let count = Arc::default();
        locked(&self.all).push(Replacement { count: Arc::clone(&count), ..replacement });
        Replaced(count)
    }

    pub(super) fn clear(&self) {
        locked(&self.all).clear();
        self.lose_pushes(false);
    }

    pub(super) fn lose_pushes(&self, are_lost: bool) {
        self.loses_pushes.store(are_lost, SeqCst);
    }

    fn loses(&self, reply: &[u8]) -> bool {
        resp::is_push(reply) && self.loses_pushes.load(SeqCst)
    }

    pub(super) fn hold(&self, needle: &[u8]) -> Arc<Mutex<Option<Vec<u8>>>> {
        let command = Arc::default();
        locked(&self.holds).push(Hold { needle: needle.to_vec(), command: Arc::clone(&command) });
        command
    }

    /// Whether a command is held back. It is kept then.
    fn keeps(&self, command: &[u8]) -> bool {
        let mut waiting = locked(&self.holds);
        let words = if waiting.is_empty() { return false } else { resp::words(command) };
        let Some(at) = waiting.iter().position(|it| holds(&words, &it.needle)) else {
            return false;
        };
        *locked(&waiting.remove(at).command) = Some(command.to_vec());
        true
    }

    /// The first one for a command, which has been used once more then.
    fn choose(&self, command: &[u8]) -> Option<Replacement> {
        let mut all = locked(&self.all);
        let words = if all.is_empty() { return None } else { resp::words(command) };
        let chosen = all.iter_mut().find(|it| it.left > 0 && holds(&words, &it.needle))?;
        chosen.left -= 1;
        Some(chosen.clone())
    }
}

/// The next command whose words hold `needle` is held back.
#[derive(Debug)]
struct Hold {
    needle: Vec<u8>,
    /// The command, once it has come.
    command: Arc<Mutex<Option<Vec<u8>>>>,
}

fn holds(words: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || words.windows(needle.len()).any(|window| window == needle)
}

/// Sees what goes in one direction.
pub(super) trait Inspect {
    /// What goes on, of what has come.
    fn inspect(&mut self, bytes: &[u8]) -> Vec<u8>;

    /// The incomplete remainder of a stream that has ended.
    fn rest(&mut self) -> Vec<u8>;
}

/// Both directions of one connection. Bytes that are no RESP are forwarded unchanged.
pub(super) fn inspectors(replacements: Replacements, is_resp: bool) -> (Commands, Replies) {
    let expected = Expected::default();
    let commands = Commands {
        frames: Frames::of(resp::command, is_resp),
        replacements: replacements.clone(),
        expected: Arc::clone(&expected),
    };
    (commands, Replies { frames: Frames::of(resp::value, is_resp), replacements, expected })
}

/// The treatment of the replies that are still to come.
type Expected = Arc<Mutex<VecDeque<Option<Replacement>>>>;

pub(super) struct Commands {
    frames: Frames,
    replacements: Replacements,
    expected: Expected,
}

pub(super) struct Replies {
    frames: Frames,
    replacements: Replacements,
    expected: Expected,
}

/// Stands in for a command that is not to be done: it is answered, too.
const HARMLESS: &[u8] = b"*1\r\n$4\r\nPING\r\n";

impl Inspect for Commands {
    fn inspect(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passing = Vec::with_capacity(bytes.len());
        self.frames.push(bytes, |command| {
            // An empty line is no command.
            if !command.trim_ascii().is_empty() && !self.replacements.keeps(command) {
                let replacement = self.replacements.choose(command);
                let is_done = replacement.as_ref().is_none_or(|it| it.is_done);
                locked(&self.expected).push_back(replacement);
                passing.extend_from_slice(if is_done { command } else { HARMLESS });
            }
        });
        passing.append(&mut self.frames.unreadable());
        passing
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.frames.held)
    }
}

impl Inspect for Replies {
    fn inspect(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passing = Vec::with_capacity(bytes.len());
        self.frames.push(bytes, |reply| {
            if self.replacements.loses(reply) {
                return;
            }
            let expected =
                if resp::is_push(reply) { None } else { locked(&self.expected).pop_front() };
            match expected.flatten() {
                Some(replacement) => {
                    passing.extend_from_slice(&replacement.reply);
                    replacement.count.fetch_add(1, SeqCst);
                }
                None => passing.extend_from_slice(reply),
            }
        });
        passing.append(&mut self.frames.unreadable());
        passing
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.frames.held)
    }
}

/// Splits a stream into frames.
struct Frames {
    length: fn(&[u8]) -> Length,
    held: Vec<u8>,
    is_readable: bool,
}

impl Frames {
    fn of(length: fn(&[u8]) -> Length, is_readable: bool) -> Self {
        Self { length, held: Vec::new(), is_readable }
    }

    /// Takes bytes in, and returns the complete frames.
    fn push(&mut self, bytes: &[u8], mut whole: impl FnMut(&[u8])) {
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        while self.is_readable && at < self.held.len() {
            match (self.length)(&self.held[at..]) {
                Ok(Some(length)) => {
                    whole(&self.held[at..at + length]);
                    at += length;
                }
                Ok(None) => break,
                Err(_) => self.is_readable = false,
            }
        }
        self.held.drain(..at);
    }

    /// Bytes that are no RESP are forwarded unchanged, and so is everything after them.
    fn unreadable(&mut self) -> Vec<u8> {
        if self.is_readable { Vec::new() } else { std::mem::take(&mut self.held) }
    }
}
