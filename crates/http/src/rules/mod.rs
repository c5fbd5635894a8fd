//! What HTTP says about caching (RFC 9110, 9111, 9213 and 5861), as functions of what was said.
//!
//! There is no I/O here, and nothing is kept. Times are passed in; only the century of a date whose
//! year has two digits is read by the clock.

mod ages;
#[cfg(test)]
mod cases;
mod conditions;
mod consent;
mod dates;
mod demand;
mod directives;
mod fields;
mod hop_by_hop;
mod invalidation;
mod lists;
mod ranges;
#[cfg(test)]
mod samples;
mod storing;
mod terms;
mod upgrade;
mod validation;
mod vary;

pub(crate) use ages::{Times, on_arrival};
pub(crate) use conditions::{asks_if_modified, is_not_modified, not_modified_headers};
pub(crate) use consent::Consent;
pub(crate) use demand::Demand;
pub(crate) use fields::storable_headers;
pub(crate) use hop_by_hop::{names_others, remove_hop_by_hop, remove_named};
pub(crate) use invalidation::{invalidated, is_safe};
pub(crate) use ranges::{Slice, slice};
pub(crate) use storing::{Storing, Why, for_others, must_be_validated, storing};
pub(crate) use terms::{Defaults, Terms};
pub(crate) use upgrade::ignore_offer_of_h2c;
pub(crate) use validation::{HeadSays, add_validators, freshen, head_says};
pub(crate) use vary::variant;
