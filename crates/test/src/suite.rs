//! Building blocks for conformance suites.
//!
//! A contract is a list of promises. For each there is a check: an async function that tests an
//! implementation, and returns what it did wrong. The suites of [stores](crate::conformance)
//! and of locks use this module. A suite for a contract of your own looks like this:
//!
//! ```
//! use bellwether_test::suite::{Check, Checked, Trial, checks, ensure, run_checks};
//!
//! struct Subject {
//!     stack: Vec<u8>,
//! }
//!
//! mod order {
//!     use super::*;
//!
//!     pub async fn the_last_one_in_is_the_first_one_out(mut on: Subject) -> Checked {
//!         on.stack.extend([1, 2]);
//!         let first = on.stack.pop();
//!         ensure!(first == Some(2), "{first:?} came out");
//!         Ok(())
//!     }
//! }
//!
//! const CHECKS: &[(&str, Check<Subject>)] = checks![order::the_last_one_in_is_the_first_one_out];
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let subject = |_: Trial| Subject { stack: Vec::new() };
//! assert_eq!(run_checks(CHECKS, 8, subject).await, []);
//! # }
//! ```

use std::fmt;
use std::time::Duration;

use bellwether::adapter::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::time::timeout;
use uuid::Uuid;

use bellwether::store::Claim;
use bellwether::{Key, StoreError};

pub use crate::{__suite_checks as checks, __suite_ensure as ensure};

/// A check that an implementation did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The check: what the contract promises.
    pub check: &'static str,
    /// What the implementation did instead.
    pub instead: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.instead)
    }
}

/// What an implementation did wrong.
#[derive(Debug)]
pub struct Deviation(String);

impl Deviation {
    /// A deviation in words, such as `it was not found`.
    pub fn new(instead: impl Into<String>) -> Self {
        Self(instead.into())
    }
}

impl From<StoreError> for Deviation {
    fn from(error: StoreError) -> Self {
        Self(format!("failed: {error}"))
    }
}

/// The result of a check.
pub type Checked = Result<(), Deviation>;

/// A check of a subject: an implementation, with everything that a check needs to call it.
pub type Check<S> = fn(S) -> BoxFuture<'static, Checked>;

/// One run of a check, with a key that no other run uses.
#[derive(Clone, Debug)]
pub struct Trial {
    check: &'static str,
    run: Uuid,
}

impl Trial {
    /// The key of this run.
    pub fn key(&self) -> Key {
        Key::of("conformance").with(self.check).with(self.run)
    }

    /// Another run of the same check, with another key.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { check: self.check, run: Uuid::new_v4() }
    }

    /// A new claim on that key.
    pub fn claim(&self) -> Claim {
        Claim::new(self.key())
    }
}

/// Runs checks, `at_once` at a time, each on its own subject. Returns the violations, in the order
/// of the checks. A check that takes over a minute is a violation.
pub async fn run_checks<S>(
    checks: &'static [(&'static str, Check<S>)],
    at_once: usize,
    subject: impl Fn(Trial) -> S,
) -> Vec<Violation> {
    let runs = checks.iter().map(|(check, run)| {
        let run = run(subject(Trial { check, run: Uuid::new_v4() }));
        async move {
            let checked = timeout(LIMIT, run).await;
            let late = |_| Err(Deviation(format!("no end of it in {LIMIT:?}")));
            let Deviation(instead) = checked.unwrap_or_else(late).err()?;
            Some(Violation { check, instead })
        }
    });
    stream::iter(runs).buffered(at_once).filter_map(std::future::ready).collect().await
}

/// Longer than any check takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns a [`Deviation`](crate::suite::Deviation) from a check unless a condition holds.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite_ensure {
    ($condition:expr, $($instead:tt)+) => {
        if !$condition {
            return Err($crate::suite::Deviation::new(format!($($instead)+)));
        }
    };
}

/// A list of check functions with their names.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite_checks {
    ($($topic:ident::$check:ident),* $(,)?) => {
        &[$((stringify!($check), |subject| Box::pin($topic::$check(subject)))),*]
    };
}
