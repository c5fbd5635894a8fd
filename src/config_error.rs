//! `ConfigError`: an option with an invalid value, and the checks that find it.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// An option with an invalid value, or one without effect. The method that sets the option returns it,
/// in all crates: no option panics, and none is ignored. An option that cannot be wrong, such as a
/// `ttl`, returns no `Result`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share is out of its range.
    Share {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: f64,
        /// The smallest that is accepted.
        least: f64,
        /// The largest that is accepted.
        most: f64,
    },
    /// A duration is out of its range.
    Duration {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: Duration,
        /// The shortest that is accepted.
        least: Duration,
        /// The longest that is accepted.
        most: Duration,
    },
    /// A number is out of its range.
    Number {
        /// The setting.
        setting: &'static str,
        /// What was given.
        given: usize,
        /// The smallest that is accepted.
        least: usize,
        /// The largest that is accepted.
        most: usize,
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
            Self::Duration { setting, given, least, most } => {
                write!(f, "{setting} must be from {least:?} to {most:?}, not {given:?}")
            }
            Self::Share { setting, given, least, most } => {
                write!(f, "{setting} must be from {least} to {most}, not {given}")
            }
            Self::Number { setting, given, least, most } => {
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

/// Checks a duration that was given for an option.
///
/// # Errors
/// [`ConfigError::Duration`] if it is not from `least` to `most`.
pub fn duration_within(
    setting: &'static str,
    given: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, ConfigError> {
    if given < least || given > most {
        return Err(ConfigError::Duration { setting, given, least, most });
    }
    Ok(given)
}

/// Checks a number that was given for an option.
///
/// # Errors
/// [`ConfigError::Number`] if it is not from `least` to `most`.
pub fn number_within(
    setting: &'static str,
    given: usize,
    least: usize,
    most: usize,
) -> Result<usize, ConfigError> {
    if given < least || given > most {
        return Err(ConfigError::Number { setting, given, least, most });
    }
    Ok(given)
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

/// Checks a share or a factor that was given for an option. A NaN is in no range.
pub(crate) fn share_within(
    setting: &'static str,
    given: f64,
    least: f64,
    most: f64,
) -> Result<f64, ConfigError> {
    if !(least..=most).contains(&given) {
        return Err(ConfigError::Share { setting, given, least, most });
    }
    Ok(given)
}
