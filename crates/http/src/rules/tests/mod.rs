//! Tests of the rules together, and messages for the tests of each.

mod cases;
pub(super) mod samples;
