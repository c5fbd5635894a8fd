//! The rules of HTTP caching (RFC 9110, 9111, 9213, 9875 and 5861), as functions of requests and
//! responses.
//!
//! There is no I/O and no state here. Times are passed in; the clock is read only to find the century
//! of a date with a two-digit year.

mod ages;
#[cfg(test)]
mod cases;
mod conditions;
mod consent;
mod dates;
mod demand;
mod directives;
mod fields;
mod groups;
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
pub(crate) use consent::{Consent, Credentials};
pub(crate) use demand::Demand;
pub(crate) use fields::{fields_for_one, storable_headers};
pub(crate) use groups::{CACHE_GROUPS, invalidated_groups, listed, surrogate_keys};
pub(crate) use hop_by_hop::{names_others, remove_hop_by_hop};
pub(crate) use invalidation::{invalidated, is_safe};
pub(crate) use ranges::{Slice, slice};
pub(crate) use storing::{PrivateReason, Storing, for_others, must_be_validated, storing};
pub(crate) use terms::{Defaults, StaleWindows, Terms};
pub(crate) use upgrade::ignore_offer_of_h2c;
pub(crate) use validation::{HeadSays, add_validators, freshen, head_says};
pub(crate) use vary::variant;
