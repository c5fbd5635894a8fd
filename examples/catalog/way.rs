//! The two ways to answer a request.

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Every request queries the database.
    Unprotected,
    /// Through bellwether.
    Protected,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Unprotected, Self::Protected];

    /// The way that a request asks for: protected, unless protection is off.
    pub(crate) fn said(protect: Option<&str>) -> Self {
        match protect {
            Some("off") => Self::Unprotected,
            _ => Self::Protected,
        }
    }
}
