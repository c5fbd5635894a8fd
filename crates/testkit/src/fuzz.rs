//! Fuzzing: tests of many random inputs, which are made of choices by a grammar, or are valid inputs that were mutated.
//!
//! An input is made of bytes, each of which is a choice of the grammar. `proptest` runs the test. If it fails, fewer and
//! smaller choices are tried, so the input that is shown is a small one. A choice of zero, which is also what follows the
//! last byte, is the simplest.
//!
//! Each test runs 100,000 inputs, or as many as `BELLWETHER_FUZZ_INPUTS` says: `scripts/fuzz` sets that.

use std::panic::Location;
use std::time::Instant;
use std::{env, mem};

use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRunner};

/// Choices, in their order.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    bytes: Vec<u8>,
    at: usize,
}

/// Runs a test of random inputs, each made of so many choices at most. One run of it counts as `each` inputs.
///
/// # Panics
/// If the test does, with the message for the smallest input that was found.
#[track_caller]
pub fn fuzz(target: &str, choices: usize, each: u32, test: impl Fn(&mut Choices)) {
    run(target, (INPUTS, choices, each), test);
}

/// As [`fuzz`], for inputs that take so long that a tenth of them has to suffice in the suite.
///
/// # Panics
/// As that.
#[track_caller]
pub fn fuzz_slowly(target: &str, choices: usize, each: u32, test: impl Fn(&mut Choices)) {
    run(target, (INPUTS / 10, choices, each), test);
}

#[track_caller]
fn run(target: &str, (inputs, choices, each): (u32, usize, u32), test: impl Fn(&mut Choices)) {
    let wanted = env::var("BELLWETHER_FUZZ_INPUTS").map_or(Ok(inputs), |wanted| wanted.parse());
    let wanted: u32 = wanted.expect("BELLWETHER_FUZZ_INPUTS is a number");
    let cases = wanted.div_ceil(each);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        rng_algorithm: RngAlgorithm::XorShift,
        source_file: Some(Location::caller().file()),
        ..Config::default()
    };
    let began = Instant::now();
    let ran = TestRunner::new(config).run(&Lengths(choices), |mut choices| {
        test(&mut choices);
        Ok(())
    });
    match ran {
        Ok(()) => {}
        Err(TestError::Fail(why, Choices { bytes, .. })) => panic!("{target}: {why}, by {bytes:?}"),
        Err(TestError::Abort(why)) => panic!("{target}: {why}"),
    }
    println!("fuzzed {target}: {} inputs in {:.1} s", cases * each, began.elapsed().as_secs_f64());
}

/// How many inputs a test of the suite has.
const INPUTS: u32 = 100_000;

impl Choices {
    /// One of the numbers below this.
    pub fn below(&mut self, most: usize) -> usize {
        let bytes = if most > 256 { 3 } else { 1 };
        let chosen = (0..bytes).fold(0, |chosen, _| chosen << 8 | usize::from(self.byte()));
        chosen % most.max(1)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        byte
    }

    /// Whether an event happens that happens once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of these, the first of which is the simplest.
    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// A number, often a small one or one at a limit.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.byte().into(),
            1 => {
                let power = 1_u64.checked_shl(self.below(65) as u32).unwrap_or_default();
                power.wrapping_add(self.below(3) as u64).wrapping_sub(1)
            }
            _ => {
                let bytes = 1 + self.below(8);
                (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
            }
        }
    }

    /// At most so many bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.byte()).collect()
    }

    /// A text of at most so many letters, many of which mean something in some format.
    pub fn text(&mut self, most: usize) -> String {
        let length = self.below(most + 1);
        (0..length).map(|_| self.letter()).collect()
    }

    fn letter(&mut self) -> char {
        match self.below(4) {
            0 | 1 => char::from(b'a' + self.below(26) as u8),
            2 => char::from(b' ' + self.below(95) as u8),
            _ => char::from_u32(self.below(0x500) as u32).unwrap_or('\u{fffd}'),
        }
    }

    /// One to four changes of a valid input: it is cut, doubled in part, spliced with another valid one, or has bits
    /// and bytes that are others.
    pub fn mutated(&mut self, valid: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(4) {
            self.mutate(&mut bytes, other);
        }
        bytes
    }

    /// As [`mutated`](Self::mutated), for texts.
    pub fn mutated_text(&mut self, valid: &str, other: &str) -> String {
        String::from_utf8_lossy(&self.mutated(valid.as_bytes(), other.as_bytes())).into_owned()
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = bytes.len().min(at + 1 + self.below(16));
        match self.below(9) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(..at)),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, part));
            }
            4 => {
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            5 => {
                let from = self.below(other.len() + 1);
                let to = other.len().min(from + 1 + self.below(16));
                drop(bytes.splice(at..end, other[from..to].iter().copied()));
            }
            6 => bytes.insert(at, self.telling()),
            7 => _ = bytes.get_mut(at).map(|byte| *byte = self.telling()),
            _ => _ = bytes.get_mut(at).map(|byte| *byte ^= 1 << self.below(8)),
        }
    }

    /// A byte that means something in some format, or any.
    fn telling(&mut self) -> u8 {
        const TELLING: &[u8] = b"\0\xff\x7f\x80\x01 \t\r\n,;:=\"\\/?#@%&.-+*{}[]()09aZ";
        match self.below(2) {
            0 => TELLING[self.below(TELLING.len())],
            _ => self.byte(),
        }
    }
}

/// Inputs of at most so many choices.
#[derive(Debug)]
struct Lengths(usize);

impl Strategy for Lengths {
    type Tree = ChoicesTree;
    type Value = Choices;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        use proptest::prelude::Rng;
        // SplitMix64, because a debug build fills bytes slowly.
        let mut state = runner.rng().next_u64();
        let mut bytes = Vec::with_capacity(self.0 + 8);
        while bytes.len() < self.0 {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bytes.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
        }
        bytes.truncate(self.0);
        let step = ShrinkStep { length: self.0, at: 0, kind: 0 };
        Ok(ChoicesTree { bytes, former: None, step, has_shrunk: false })
    }
}

/// How an input that fails is made smaller: runs of choices are left out or become zero or smaller, first long runs and at
/// last single choices, until none of that keeps the failure.
struct ChoicesTree {
    bytes: Vec<u8>,
    /// What they were before the last step.
    former: Option<Vec<u8>>,
    step: ShrinkStep,
    /// Whether it has become smaller since the runs were long.
    has_shrunk: bool,
}

/// The next step.
#[derive(Clone, Copy)]
struct ShrinkStep {
    /// The length of the runs.
    length: usize,
    /// Where the next run begins.
    at: usize,
    kind: u8,
}

impl ValueTree for ChoicesTree {
    type Value = Choices;

    fn current(&self) -> Choices {
        Choices { bytes: self.bytes.clone(), at: 0 }
    }

    fn simplify(&mut self) -> bool {
        // It is asked for a smaller one without `complicate`: the last one fails, too.
        self.has_shrunk |= self.former.take().is_some();
        while self.step.length > 0 {
            let ShrinkStep { length, at, kind } = self.step;
            if at >= self.bytes.len() {
                let again = length == 1 && mem::take(&mut self.has_shrunk);
                let length = if again { self.bytes.len() / 2 } else { length / 2 };
                self.step = ShrinkStep { length, at: 0, kind: 0 };
                continue;
            }
            let end = self.bytes.len().min(at + length);
            let mut smaller = self.bytes.clone();
            match kind {
                0 => drop(smaller.drain(at..end)),
                1 => smaller[at..end].fill(0),
                2 => smaller[at..end].iter_mut().for_each(|byte| *byte /= 2),
                _ => smaller[at..end].iter_mut().for_each(|byte| *byte = byte.saturating_sub(1)),
            }
            self.step = match kind {
                3 => ShrinkStep { at: at + length, kind: 0, length },
                kind => ShrinkStep { kind: kind + 1, at, length },
            };
            if smaller != self.bytes {
                self.former = Some(mem::replace(&mut self.bytes, smaller));
                return true;
            }
        }
        false
    }

    fn complicate(&mut self) -> bool {
        if let Some(former) = self.former.take() {
            self.bytes = former;
        }
        self.simplify()
    }
}
