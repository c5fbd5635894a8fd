//! What conformance suites are made of.
//!
//! A contract is a list of promises. Each is a check: an async function that puts an implementation
//! to the test and returns what the implementation did instead. The suites of
//! [stores](crate::store::conformance) and of locks are made of this module, and so can a suite for
//! a contract of your own be:
//!
//! ```
//! use bellwether::conformance::{Check, Checked, Trial, checks, ensure, run_checks};
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

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::time::timeout;
use uuid::Uuid;

use crate::claim::Claim;
use crate::error::StoreError;
use crate::key::Key;

pub use crate::{__conformance_checks as checks, __conformance_ensure as ensure};

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

/// What an implementation did instead of what a check promises.
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

/// What a check comes to.
pub type Checked = Result<(), Deviation>;

/// A check of a subject: an implementation, and what is needed to ask it.
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

    /// A new claim to that key.
    pub fn claim(&self) -> Claim {
        Claim::new(self.key())
    }
}

/// Runs checks, so many at once, each on a subject of its own. Returns which were not passed, in
/// their order. A check that does not end within a minute is one of them.
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

/// Returns a [`Deviation`](crate::conformance::Deviation) from a check unless a condition holds.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_ensure {
    ($condition:expr, $($instead:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Deviation::new(format!($($instead)+)));
        }
    };
}

/// The checks that these functions are, each by its name.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks {
    ($($topic:ident::$check:ident),* $(,)?) => {
        &[$((stringify!($check), |subject| Box::pin($topic::$check(subject)))),*]
    };
}
