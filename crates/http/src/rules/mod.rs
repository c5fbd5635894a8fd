//! The rules of HTTP caching (RFC 9110, 9111, 9213, 9875 and 5861), as functions of requests and
//! responses.
//!
//! There is no I/O, no clock and no state here: times are passed in.

mod conditions;
mod dates;
mod fields;
mod invalidation;
mod lists;
mod storing;
mod terms;
mod vary;

pub(crate) use conditions::{
    Slice, add_validators, asks_if_modified, freshen, is_not_modified, not_modified_headers, slice,
    without_conditions, without_weakness,
};
pub(crate) use dates::{Times, on_arrival};
pub(crate) use fields::{
    fields_for_one, ignore_offer_of_h2c, names_others, remove_hop_by_hop, storable_headers,
};
pub(crate) use invalidation::{
    CACHE_GROUPS, invalidated, invalidated_groups, is_safe, listed, succeeds_unsafely,
    surrogate_keys,
};
pub(crate) use lists::only;
pub(crate) use storing::{
    PrivateReason, Storing, for_others, forbidden_by_trailers, must_be_validated, storing,
};
pub(crate) use terms::{Consent, Credentials, Defaults, Demand, Terms};
pub(crate) use vary::{in_one_form, variant, vary};

#[cfg(test)]
mod tests;
