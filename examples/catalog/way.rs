//! The ways to answer a request.

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Every request queries the database.
    Unprotected,
    /// Through a plain cache with a time to live, as most programs have one.
    Plain,
    /// Through bellwether.
    Protected,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Unprotected, Self::Plain, Self::Protected];

    /// The way that a request asks for: protected, unless it names another one.
    pub(crate) fn said(protect: Option<&str>) -> Self {
        match protect {
            Some("off") => Self::Unprotected,
            Some("plain") => Self::Plain,
            _ => Self::Protected,
        }
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unprotected => "unprotected",
            Self::Plain => "plain",
            Self::Protected => "protected",
        }
    }
}
