//! Chance, where a pause or a window asks for a number.

/// A number from 0 to 1, for jitter: a dozen random bits are more than a pause can show.
pub(crate) fn draw() -> f64 {
    let [high, low, ..] = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX)
}
