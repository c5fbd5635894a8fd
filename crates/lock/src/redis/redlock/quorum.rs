//! What the answers of the nodes decide. Nothing is asked here.

use std::time::Duration;

use crate::{Attempt, Busy, Grant, LockError, Released, Renew};

/// How many of the nodes decide: more than half.
fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The outcome of an attempt, unless too few nodes answered to grant the lock to any claim.
pub(super) fn attempted(answers: &[Result<Attempt, LockError>]) -> Option<Attempt> {
    let quorum = quorum(answers.len());
    let granted = answers.iter().filter(|answer| matches!(answer, Ok(Attempt::Granted(_)))).count();
    if granted >= quorum {
        return Some(Attempt::Granted(Grant::by_lease()));
    }
    let ends = answers.iter().filter_map(|answer| match answer {
        Ok(Attempt::Busy(busy)) => Some(busy.remaining.unwrap_or(Duration::MAX)),
        _ => None,
    });
    let mut ends: Vec<_> = ends.collect();
    if ends.is_empty() || granted + ends.len() < quorum {
        return None;
    }
    // When this many leases have ended, a quorum of nodes can be free.
    ends.sort();
    let remaining = ends.get(quorum - granted - 1).copied().filter(|left| *left < Duration::MAX);
    Some(Attempt::Busy(Busy { remaining, ..Busy::new() }))
}

/// The outcome of a renewal, if the answers decide it.
pub(super) fn renewed(answers: &[Result<Renew, LockError>]) -> Option<Renew> {
    decided(answers, Renew::Held, Renew::Lost)
}

/// The outcome of a release, if the answers decide it.
pub(super) fn released(answers: &[Result<Released, LockError>]) -> Option<Released> {
    decided(answers, Released::Freed, Released::NotHeld)
}

fn decided<A: PartialEq>(answers: &[Result<A, LockError>], yes: A, no: A) -> Option<A> {
    let quorum = quorum(answers.len());
    let count = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| *it == yes)).count();
    let unknown = answers.iter().filter(|answer| answer.is_err()).count();
    match count {
        count if count >= quorum => Some(yes),
        count if count + unknown < quorum => Some(no),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    fn failed<T>() -> Result<T, LockError> {
        Err(LockError::new(LockErrorKind::NoReply, "no answer"))
    }

    /// `g`: granted; a digit: taken for so many seconds; `t`: taken without a known end; `e`: an
    /// error.
    fn outcome(answers: &str) -> Option<Attempt> {
        let busy = |remaining| Ok(Attempt::Busy(Busy { remaining, ..Busy::new() }));
        let asked = |letter: char| match letter {
            'g' => Ok(Attempt::Granted(Grant::by_lease())),
            't' => busy(None),
            'e' => failed(),
            digit => busy(digit.to_digit(10).map(|secs| Duration::from_secs(secs.into()))),
        };
        attempted(&answers.chars().map(asked).collect::<Vec<_>>())
    }

    #[test]
    fn more_than_half_of_the_nodes_grant_it() {
        for granted in ["ggg", "gge", "gg1", "ggeet", "gggee", "ggg1"] {
            let expected = granted.matches('g').count() > granted.len() / 2;
            assert_eq!(
                matches!(outcome(granted), Some(Attempt::Granted(_))),
                expected,
                "{granted}"
            );
        }
    }

    #[test]
    fn a_split_vote_of_an_even_number_of_nodes_is_busy() {
        assert!(matches!(outcome("gg11"), Some(Attempt::Busy(_))));
    }

    #[test]
    fn too_few_answers_are_an_error_and_not_busy() {
        for failed in ["gee", "eee", "1ee", "ggeee", "g1eee", "ge"] {
            assert!(outcome(failed).is_none(), "{failed}");
        }
        assert!(matches!(outcome("g1e"), Some(Attempt::Busy(_))));
    }

    #[test]
    fn busy_tells_when_enough_leases_end_for_a_quorum() {
        let left = |answers| match outcome(answers) {
            Some(Attempt::Busy(busy)) => busy.remaining.map(|left| left.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(left("12345"), Some(3));
        assert_eq!(left("gg729"), Some(2));
        assert_eq!(left("ttt"), None);
    }

    #[test]
    fn a_renewal_is_lost_only_if_the_missing_answers_could_not_change_it() {
        let answers = |held: usize, free: usize, failures: usize| {
            let held = vec![Ok(Renew::Held); held];
            let free = vec![Ok(Renew::Lost); free];
            [held, free, (0..failures).map(|_| failed()).collect()].concat()
        };
        assert_eq!(renewed(&answers(3, 2, 0)), Some(Renew::Held));
        assert_eq!(renewed(&answers(2, 3, 0)), Some(Renew::Lost));
        assert_eq!(renewed(&answers(2, 2, 1)), None);
        assert_eq!(renewed(&answers(1, 3, 1)), Some(Renew::Lost));
    }
}
