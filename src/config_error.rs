//! `ConfigError`: an option with an invalid value, and the checks that find it.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;

/// An option with an invalid value, or one without effect. What ends a chain of options returns the first
/// one, such as `build` or `connect`. No option panics, and none is ignored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number or a duration is out of its range.
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: String,
        /// The smallest that is accepted.
        least: String,
        /// The largest that is accepted.
        most: String,
    },
    /// A namespace has other characters than `A-Z a-z 0-9 _ . -`, or not 1 to 64 of them.
    Namespace {
        /// What was given.
        given: String,
    },
    /// A key function or template is invalid.
    Key {
        /// What was given.
        given: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An option of TLS is invalid.
    Tls {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The option would have no effect.
    NoEffect {
        /// The setting.
        setting: &'static str,
        /// What it is for.
        reason: &'static str,
    },
    /// The URL of a store is invalid. The error does not repeat it, since it may hold a password.
    Url {
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { setting, given, least, most } => {
                write!(f, "{setting} must be from {least} to {most}, not {given}")
            }
            Self::Namespace { given } => {
                write!(f, "namespace must be 1 to 64 of `A-Z a-z 0-9 _ . -`, not {given:?}")
            }
            Self::Key { given, reason } => write!(f, "key {given:?}: {reason}"),
            Self::NoEffect { setting, reason } => {
                write!(f, "{setting} would have no effect: {reason}")
            }
            Self::Tls { reason } => write!(f, "tls: {reason}"),
            Self::Url { reason } => write!(f, "store url: {reason}"),
        }
    }
}

impl Error for ConfigError {}

/// For options that are options already: see `RedisStore::connect`.
impl From<Infallible> for ConfigError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The first wrong option of a chain, kept until its end.
#[derive(Clone, Debug, Default)]
pub struct FirstError(Option<ConfigError>);

impl FirstError {
    /// Sets an option to a value that was checked, or keeps what is wrong with it.
    pub fn set<T>(&mut self, option: &mut T, checked: Result<T, ConfigError>) {
        match checked {
            Ok(value) => *option = value,
            Err(error) => _ = self.0.get_or_insert(error),
        }
    }

    /// What the chain ends with.
    ///
    /// # Errors
    /// The first wrong option.
    pub fn result(&self) -> Result<(), ConfigError> {
        self.0.clone().map_or(Ok(()), Err)
    }
}

/// Checks a number or a duration that was given for an option.
///
/// # Errors
/// [`ConfigError::OutOfRange`] if it is not from `least` to `most`.
pub fn within<T: PartialOrd + fmt::Debug>(
    setting: &'static str,
    given: T,
    least: T,
    most: T,
) -> Result<T, ConfigError> {
    if (&least..=&most).contains(&&given) {
        return Ok(given);
    }
    // Of a float that is a whole number, without the fraction.
    let shown = |value: T| format!("{value:?}").trim_end_matches(".0").to_owned();
    let [given, least, most] = [given, least, most].map(shown);
    Err(ConfigError::OutOfRange { setting, given, least, most })
}

/// Checks a namespace. It becomes part of names on a server, and of paths on some servers.
///
/// # Errors
/// [`ConfigError::Namespace`] if it has other characters than `A-Z a-z 0-9 _ . -`, or not 1 to 64.
pub fn namespace_of(given: &str) -> Result<String, ConfigError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let fits = (1..=64).contains(&given.len()) && given.bytes().all(allowed);
    let refused = || ConfigError::Namespace { given: given.chars().take(80).collect() };
    fits.then(|| given.to_owned()).ok_or_else(refused)
}
