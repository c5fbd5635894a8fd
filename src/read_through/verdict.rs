//! The verdict on an answer of the loader: who shares it, what the store gets, and what is
//! remembered. A pure function, which flights and the model checker call.

/// What an answer of the loader says, as the codec and the rules of the program classify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    /// A value that callers may share.
    Value,
    /// A value that is private to the caller that loaded it, and so are the next ones.
    PrivateKey,
    /// A value that is private to the caller that loaded it this once.
    PrivateOnce,
    /// The source has failed, whatever was asked for.
    SourceFailed,
    /// The source has failed, or only this request. A load of another request can tell.
    Failed,
    /// The same: the load has reached its time limit.
    TimedOut,
    /// A failure of this request, or one that is over at once. Other requests load at once.
    RequestFailed,
    /// A failure of this load: for every request that waits for it, and no later one.
    LoadFailed,
    /// An answer that another one like it has to confirm. No stale answer replaces it.
    Unconfirmed,
}

/// What is known of the key when its load has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    /// How many loads in a row had failed before.
    pub(crate) failures: u32,
    /// The store has a value that a marker would replace, or a failure that a marker would end.
    pub(crate) replaces: bool,
    /// Later callers share failures of this load. Those of a forced refresh and of an uncached load
    /// put no key into cooldown, since both can be repeated at will.
    pub(crate) shares_failures: bool,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Verdict {
    pub(crate) share: Share,
    /// The store gets the value, its marker or the failure.
    pub(crate) is_stored: bool,
    pub(crate) remember: Remember,
}

/// Which callers share an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// Those that had joined before the load; if it is stored, before the commit.
    Joined,
    /// The one whose request was loaded.
    Opener,
    /// The same, and the others load individually.
    PrivateKey,
    /// The same, and those that remain at the end load individually.
    PrivateOnce,
    /// All that wait.
    All,
}

/// What this process remembers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Remember {
    Nothing,
    /// That the source works.
    Success,
    /// A failure that counts for the next one.
    Failure,
    /// A failure that later callers share.
    Cooldown,
}

/// The verdict on an answer.
pub(crate) fn verdict(said: Said, known: Known) -> Verdict {
    let is_confirmed = known.failures > 0;
    let (share, remember) = match said {
        Said::Value => (Share::Joined, Remember::Success),
        Said::PrivateKey => (Share::PrivateKey, Remember::Success),
        Said::PrivateOnce => (Share::PrivateOnce, Remember::Success),
        Said::SourceFailed => (Share::All, Remember::Cooldown),
        Said::Failed | Said::TimedOut if is_confirmed => (Share::All, Remember::Cooldown),
        Said::Unconfirmed if is_confirmed => (Share::All, Remember::Failure),
        Said::Failed | Said::Unconfirmed => (Share::Opener, Remember::Failure),
        // A load of their own would have taken them no less.
        Said::TimedOut => (Share::Joined, Remember::Failure),
        Said::RequestFailed => (Share::Opener, Remember::Nothing),
        Said::LoadFailed => (Share::All, Remember::Nothing),
    };
    let is_stored = match remember {
        Remember::Success => said != Said::PrivateOnce || !known.replaces,
        Remember::Failure | Remember::Cooldown => known.shares_failures,
        Remember::Nothing => false,
    };
    Verdict { share, is_stored, remember }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: Said, failures: u32) -> (Share, Remember) {
        let known = Known { failures, replaces: false, shares_failures: true };
        let Verdict { share, remember, .. } = verdict(said, known);
        (share, remember)
    }

    #[test]
    fn a_second_failure_confirms_the_first() {
        for said in [Said::Failed, Said::Unconfirmed, Said::TimedOut] {
            assert_eq!(of(said, 0).1, Remember::Failure, "{said:?}");
            assert_eq!(of(said, 1).0, Share::All, "{said:?}");
        }
        assert_eq!(of(Said::Failed, 0).0, Share::Opener);
        assert_eq!(of(Said::TimedOut, 0).0, Share::Joined);
        assert_eq!(of(Said::Failed, 1).1, Remember::Cooldown);
    }

    #[test]
    fn an_answer_that_was_given_begins_no_cooldown() {
        assert_eq!(of(Said::Unconfirmed, 9).1, Remember::Failure);
    }

    #[test]
    fn a_failure_of_one_load_or_request_is_not_remembered() {
        assert_eq!(of(Said::RequestFailed, 9), (Share::Opener, Remember::Nothing));
        assert_eq!(of(Said::LoadFailed, 0), (Share::All, Remember::Nothing));
    }

    #[test]
    fn a_failure_that_can_be_repeated_at_will_is_not_stored() {
        let known = Known { failures: 1, replaces: true, shares_failures: false };
        assert!(!verdict(Said::SourceFailed, known).is_stored);
        assert!(!verdict(Said::PrivateOnce, known).is_stored, "the marker would replace a value");
        assert!(verdict(Said::PrivateKey, known).is_stored);
    }
}
