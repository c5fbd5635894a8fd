//! `MissingServer`: a server that this machine does not have.

use std::error::Error;
use std::fmt;

/// A server that is not installed. It says how to get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingServer {
    /// What was looked for, as in `Redis`.
    pub(super) server: &'static str,
    /// The package that has it.
    pub(super) package: &'static str,
}

impl MissingServer {
    /// What was looked for, as in `Redis`.
    pub fn server(&self) -> &str {
        self.server
    }
}

impl fmt::Display for MissingServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, package } = self;
        write!(
            f,
            "there is no {server} on this machine: run `scripts/test`, which installs one, or \
             `apt-get install {package}`"
        )
    }
}

impl Error for MissingServer {}
