use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::adapter::locked;

/// What a network makes of the attempts to connect, one after the other.
pub(crate) struct Network {
    ends: Mutex<VecDeque<DialOutcome>>,
    attempts: AtomicUsize,
    is_dialled: AtomicBool,
    /// The number of the last connection that was cut.
    cut: AtomicUsize,
}

#[derive(Clone, Copy)]
pub(crate) enum DialOutcome {
    Opens,
    Fails,
    /// The runtime ends meanwhile.
    IsDropped,
}

impl Network {
    pub(crate) fn of(ends: &[DialOutcome]) -> Arc<Self> {
        Arc::new(Self {
            ends: Mutex::new(ends.iter().copied().collect()),
            attempts: AtomicUsize::new(0),
            is_dialled: AtomicBool::new(false),
            cut: AtomicUsize::new(0),
        })
    }

    pub(crate) fn cut(&self, connection: usize) {
        self.cut.store(connection, Ordering::Release);
    }

    pub(crate) fn has_cut(&self, connection: usize) -> bool {
        connection <= self.cut.load(Ordering::Acquire)
    }

    /// The number of the next attempt, and what becomes of it.
    pub(crate) fn attempt(&self) -> (usize, DialOutcome) {
        assert!(!self.is_dialled.swap(true, Ordering::AcqRel), "two attempts at once");
        let number = self.attempts.fetch_add(1, Ordering::AcqRel) + 1;
        let end = locked(&self.ends).pop_front().expect("no further attempt");
        self.is_dialled.store(false, Ordering::Release);
        (number, end)
    }
}
