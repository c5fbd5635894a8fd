//! `CachingRules`: whose rules a layer follows.

use super::mode::{Mode, ProgramRules};
use super::rules::{Credentials, Defaults, StaleWindows};

/// The rules of RFC 9111: a response states how long it is fresh, and whether it may be shared.
#[derive(Clone, Debug)]
pub struct Rfc9111Rules(pub(super) Defaults);

/// The rules of the program: it states the key and the lifetimes of responses.
#[derive(Clone, Debug)]
pub struct KeyedRules(pub(super) ProgramRules);

/// The rules of a layer: [`Rfc9111Rules`] or [`KeyedRules`]. This trait is sealed.
pub trait CachingRules: sealed::Sealed {}

impl<R: sealed::Sealed> CachingRules for R {}

pub(super) mod sealed {
    #[allow(unnameable_types, reason = "it is sealed: there are two")]
    pub trait Sealed {
        #[allow(private_interfaces, reason = "code outside cannot call it")]
        fn mode(&self) -> super::Mode;

        #[allow(private_interfaces, reason = "code outside cannot call it")]
        fn stale(&mut self) -> &mut super::StaleWindows;

        #[allow(private_interfaces, reason = "code outside cannot call it")]
        fn credentials(&mut self) -> &mut super::Credentials;
    }
}

#[allow(private_interfaces, reason = "code outside cannot call it")]
impl sealed::Sealed for Rfc9111Rules {
    fn mode(&self) -> Mode {
        Mode::Stated(self.0.clone())
    }

    fn stale(&mut self) -> &mut StaleWindows {
        &mut self.0.stale
    }

    fn credentials(&mut self) -> &mut Credentials {
        &mut self.0.credentials
    }
}

#[allow(private_interfaces, reason = "code outside cannot call it")]
impl sealed::Sealed for KeyedRules {
    fn mode(&self) -> Mode {
        Mode::Keyed(self.0.clone())
    }

    fn stale(&mut self) -> &mut StaleWindows {
        &mut self.0.stale
    }

    fn credentials(&mut self) -> &mut Credentials {
        &mut self.0.credentials
    }
}
