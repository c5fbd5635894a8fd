//! What the answers of the nodes come to. Nothing is asked here.

use std::time::Duration;

use bellwether::StoreError;

use crate::{Busy, Released, Renew};

/// What a node answers who wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Granted,
    /// Somebody else has it, for so long if they do not renew it.
    Taken(Option<Duration>),
}

/// What a node answers who renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    Held,
    /// Nobody has it: it has lapsed, or the node has lost its data.
    Free,
    Taken,
}

/// Of so many nodes, those that decide: more than half.
pub(super) fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What an attempt comes to, but for those that failed to answer.
#[derive(Debug)]
pub(super) enum Attempted {
    Granted,
    Busy(Busy),
    /// Too few answered. Nobody could be granted it now.
    Failed,
}

pub(super) fn attempted(answers: &[Result<Asked, StoreError>]) -> Attempted {
    let quorum = quorum(answers.len());
    let granted = answers.iter().filter(|answer| matches!(answer, Ok(Asked::Granted))).count();
    if granted >= quorum {
        return Attempted::Granted;
    }
    let mut ends: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            Ok(Asked::Taken(left)) => Some(left.unwrap_or(Duration::MAX)),
            _ => None,
        })
        .collect();
    if ends.is_empty() || granted + ends.len() < quorum {
        return Attempted::Failed;
    }
    // When so many more are free, there can be a quorum.
    ends.sort();
    let last = ends.get(quorum - granted - 1).filter(|left| **left < Duration::MAX);
    Attempted::Busy(last.map_or_else(Busy::new, |left| Busy::new().for_another(*left)))
}

/// What a renewal comes to, if that is known.
pub(super) fn renewed(answers: &[Result<Renewed, StoreError>]) -> Option<Renew> {
    let held = answers.iter().filter(|answer| matches!(answer, Ok(Renewed::Held))).count();
    decided(held, answers, Renew::Held, Renew::Lost)
}

/// What a release comes to, if that is known.
pub(super) fn released(answers: &[Result<Released, StoreError>]) -> Option<Released> {
    let freed = answers.iter().filter(|answer| matches!(answer, Ok(Released::Freed))).count();
    decided(freed, answers, Released::Freed, Released::NotHeld)
}

fn decided<A, V>(count: usize, answers: &[Result<A, StoreError>], yes: V, no: V) -> Option<V> {
    let quorum = quorum(answers.len());
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
    use bellwether::StoreErrorKind;

    fn failed<T>() -> Result<T, StoreError> {
        Err(StoreError::new(StoreErrorKind::TimedOut, "no answer"))
    }

    /// `g` for granted, a digit for taken for so many seconds, `t` for taken by who knows, `e` for none.
    fn told(answers: &str) -> Attempted {
        let asked = |letter| match letter {
            'g' => Ok(Asked::Granted),
            't' => Ok(Asked::Taken(None)),
            'e' => failed(),
            digit => {
                Ok(Asked::Taken(digit.to_digit(10).map(|secs| Duration::from_secs(secs.into()))))
            }
        };
        attempted(&answers.chars().map(asked).collect::<Vec<_>>())
    }

    #[test]
    fn more_than_half_of_the_nodes_grant_it() {
        for granted in ["ggg", "gge", "gg1", "ggeet", "gggee", "ggg1"] {
            let expected = granted.matches('g').count() > granted.len() / 2;
            assert_eq!(matches!(told(granted), Attempted::Granted), expected, "{granted}");
        }
    }

    #[test]
    fn an_even_number_of_nodes_can_be_split_and_nobody_has_it() {
        assert!(matches!(told("gg11"), Attempted::Busy(_)));
    }

    #[test]
    fn too_few_nodes_are_an_error_and_not_somebody_else() {
        for failed in ["gee", "eee", "1ee", "ggeee", "g1eee", "ge"] {
            assert!(matches!(told(failed), Attempted::Failed), "{failed}");
        }
        assert!(matches!(told("g1e"), Attempted::Busy(_)));
    }

    #[test]
    fn it_can_be_free_when_so_many_leases_have_ended_that_a_quorum_is() {
        let left = |answers| match told(answers) {
            Attempted::Busy(busy) => busy.remaining.map(|left| left.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(left("12345"), Some(3));
        assert_eq!(left("gg729"), Some(2));
        assert_eq!(left("ttt"), None);
    }

    #[test]
    fn a_renewal_is_lost_only_if_those_that_did_not_answer_could_not_save_it() {
        let answers = |held: usize, free: usize, failures: usize| {
            let held = vec![Ok(Renewed::Held); held];
            let free = vec![Ok(Renewed::Free); free];
            [held, free, (0..failures).map(|_| failed()).collect()].concat()
        };
        assert_eq!(renewed(&answers(3, 2, 0)), Some(Renew::Held));
        assert_eq!(renewed(&answers(2, 3, 0)), Some(Renew::Lost));
        assert_eq!(renewed(&answers(2, 2, 1)), None);
        assert_eq!(renewed(&answers(1, 3, 1)), Some(Renew::Lost));
    }
}
