//! Parses the replies of the scripts.

use std::time::Duration;

use crate::{Attempt, Busy, Grant, Holder, Released, Renew, Term};
use bellwether_redis_client::{RedisValue as Value, whole};

/// The reply of the scripts `take` and `acquire`.
pub(super) fn attempt(reply: Value) -> Option<Attempt> {
    let fields = match reply {
        Value::Array(fields) => fields,
        Value::Int(fence) if fence >= LEAST_FENCE => return granted(&reply),
        _ => return None,
    };
    match fields.as_slice() {
        [Value::Int(1), fence] => granted(fence),
        [Value::Int(2), left, fence, renewed, ahead @ ..] => {
            let ahead = match ahead {
                [] => None,
                [ahead] => Some(u32::try_from(whole(ahead)?).ok()?),
                _ => return None,
            };
            Some(Attempt::Busy(Busy { ahead, ..busy(left, fence, renewed)? }))
        }
        _ => None,
    }
}

fn granted(fence: &Value) -> Option<Attempt> {
    Some(Attempt::Granted(Grant { fence: Some(whole(fence)?), term: Term::Lease }))
}

/// Without a rest of the lease, the name is not a lock, or it is free and other callers are first.
fn busy(left: &Value, fence: &Value, renewed: &Value) -> Option<Busy> {
    let (Value::Int(left), Value::Int(fence)) = (left, fence) else { return None };
    let renewed_at = whole(renewed);
    let holder = match u64::try_from(*fence) {
        Ok(grant) => Some(Holder { grant, renewed_at: renewed_at? }),
        Err(_) => None,
    };
    let remaining = u64::try_from(*left).ok().map(Duration::from_millis);
    Some(Busy { holder, remaining, ahead: None })
}

/// The reply of the scripts `renew` and `verify`.
pub(super) fn renew(reply: Value) -> Option<Renew> {
    match reply {
        Value::Int(1) => Some(Renew::Held),
        Value::Int(0) => Some(Renew::Lost),
        _ => None,
    }
}

/// The reply of the scripts `release`.
pub(super) fn released(reply: Value) -> Option<Released> {
    match reply {
        Value::Int(1) => Some(Released::Freed),
        Value::Int(0) => Some(Released::NotHeld),
        _ => None,
    }
}

/// No fence is smaller: fences count from the server's time in microseconds.
const LEAST_FENCE: i64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[i64]) -> Option<Attempt> {
        attempt(Value::Array(fields.iter().map(|field| Value::Int(*field)).collect()))
    }

    #[test]
    fn a_grant_has_its_fence() {
        let granted = of(&[1, 1_795_224_578_535_484]);
        assert!(matches!(
            granted,
            Some(Attempt::Granted(Grant { fence: Some(1_795_224_578_535_484), .. }))
        ));
        assert!(matches!(
            attempt(Value::Int(1_795_224_578_535_485)),
            Some(Attempt::Granted(Grant { fence: Some(1_795_224_578_535_485), .. }))
        ));
    }

    #[test]
    fn a_foreign_value_has_neither_holder_nor_lease() {
        let Some(Attempt::Busy(busy)) = of(&[2, -1, -1, 0]) else { panic!("it is busy") };
        assert_eq!((busy.holder, busy.remaining, busy.ahead), (None, None, None));
        let Some(Attempt::Busy(busy)) = of(&[2, 40, 7, 9, 3]) else { panic!("it is busy") };
        assert_eq!(busy.holder, Some(Holder { grant: 7, renewed_at: 9 }));
        assert_eq!(busy.remaining, Some(Duration::from_millis(40)));
        assert_eq!(busy.ahead, Some(3));
    }

    #[test]
    fn malformed_replies_are_refused() {
        for fields in
            [&[] as &[i64], &[1], &[1, -1], &[1, 1, 1], &[2, 1, 1], &[3, 1], &[2, 1, 1, -1]]
        {
            assert!(of(fields).is_none(), "{fields:?}");
        }
        for reply in [Value::Nil, Value::Okay, Value::Int(2), Value::Array(vec![Value::Nil])] {
            assert!(attempt(reply.clone()).is_none(), "{reply:?}");
            assert!(
                renew(reply.clone()).is_none() && released(reply.clone()).is_none(),
                "{reply:?}"
            );
        }
    }
}
