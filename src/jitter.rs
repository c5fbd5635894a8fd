//! Jitter: random delays.

/// A random number from 0 to 1, to spread delays. It has 48 random bits: an early refresh takes its logarithm, so
/// it must hardly ever be zero.
pub fn jitter() -> f64 {
    let [a, b, c, d, e, f, ..] = *uuid::Uuid::new_v4().as_bytes();
    let bits = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    bits as f64 / ((1_u64 << 48) - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    // One in 65,536 was zero. To an early refresh that is 700 times as long as the load took before the end
    // of the ttl: a key with 1,000 hits per second was loaded every minute, however long its ttl was.
    #[test]
    fn half_a_million_draws_have_no_zero() {
        assert!((0..500_000).all(|_| jitter() > 0.0));
    }
}
