//! Answers of sentinels, and which one is used.

use redis::{Value, from_redis_value};

use super::super::address::ServerAddress;

/// What a sentinel says about the primary of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentinelAnswer {
    pub(super) primary: ServerAddress,
    /// Raised by the sentinel that was elected to do a failover.
    pub(super) epoch: u64,
}

impl SentinelAnswer {
    /// Reads the replies to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL MASTER`. None if the
    /// sentinel does not know the service.
    pub(super) fn read(address: Value, details: Value) -> Option<Self> {
        let (host, port) = from_redis_value::<Option<(String, u16)>>(address).ok()??;
        let epoch = field(&details, "config-epoch").unwrap_or_default();
        Some(Self { primary: ServerAddress::Tcp { host, port }, epoch })
    }
}

/// A number in a list or a map of names and values.
fn field(details: &Value, wanted: &str) -> Option<u64> {
    let mut fields = details.as_map_iter()?;
    let (_, value) = fields
        .find(|(name, _)| matches!(name, Value::BulkString(name) if name == wanted.as_bytes()))?;
    from_redis_value(value.clone()).ok()
}

/// The answer to use: that of the highest epoch, and of equals the most frequent one.
pub(super) fn choose(answers: &[SentinelAnswer]) -> Option<&SentinelAnswer> {
    let votes = |answer: &SentinelAnswer| {
        answers.iter().filter(|other| other.primary == answer.primary).count()
    };
    // Of equals, `max_by_key` takes the last one.
    answers.iter().rev().max_by_key(|answer| (answer.epoch, votes(answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(port: u16, epoch: u64) -> SentinelAnswer {
        let primary = ServerAddress::Tcp { host: "10.0.0.1".to_owned(), port };
        SentinelAnswer { primary, epoch }
    }

    fn chosen(answers: &[SentinelAnswer]) -> Option<u16> {
        choose(answers).map(|answer| match answer.primary {
            ServerAddress::Tcp { port, .. } => port,
            ServerAddress::Unix(_) => 0,
        })
    }

    #[test]
    fn of_sentinels_with_one_epoch_the_majority_decides() {
        assert_eq!(chosen(&[answer(1, 3), answer(2, 3), answer(2, 3)]), Some(2));
        assert_eq!(chosen(&[answer(2, 3), answer(1, 3), answer(2, 3)]), Some(2));
    }

    #[test]
    fn the_sentinel_that_did_the_failover_is_believed_before_the_others_know_of_it() {
        assert_eq!(chosen(&[answer(1, 3), answer(1, 3), answer(2, 4)]), Some(2));
    }

    #[test]
    fn a_stale_sentinel_is_overruled() {
        assert_eq!(chosen(&[answer(1, 3), answer(2, 4)]), Some(2));
        assert_eq!(chosen(&[answer(2, 4), answer(1, 3)]), Some(2));
    }

    #[test]
    fn one_answer_is_enough_and_none_is_not() {
        assert_eq!(chosen(&[answer(1, 0)]), Some(1));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn replies_of_both_protocols_are_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let address = || Value::Array(vec![text("10.0.0.1"), text("7")]);
        let list = Value::Array(["ip", "x", "config-epoch", "5"].map(text).to_vec());
        let map = Value::Map(vec![(text("config-epoch"), text("5"))]);
        for details in [list, map] {
            assert_eq!(SentinelAnswer::read(address(), details), Some(answer(7, 5)));
        }
        assert_eq!(SentinelAnswer::read(address(), Value::Nil), Some(answer(7, 0)));
        assert_eq!(SentinelAnswer::read(Value::Nil, Value::Nil), None);
    }
}
