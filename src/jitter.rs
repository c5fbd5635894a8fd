//! Jitter: random delays.

/// A random number from 0 to 1, to spread delays. Sixteen random bits are finer than any delay.
pub fn jitter() -> f64 {
    let [high, low, ..] = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX)
}
