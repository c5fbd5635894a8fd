//! `Finding`: what `doctor` has found.

/// Nothing to do.
pub(crate) const FINE: &str = "fine";

/// Worth a thought, or not known.
pub(crate) const NOTE: &str = "note";

/// It must be mended.
pub(crate) const MEND: &str = "mend";

/// What it is about, the verdict, and what was found.
pub(crate) type Finding = (&'static str, &'static str, String);
