//! How the statistics count the end of a load.

use super::load::{AnswerStorage, LoaderAnswer};
use crate::error::FailureCause;
use crate::stats::LoadResult;

impl LoaderAnswer {
    /// How its load counts.
    pub(super) fn result(&self) -> LoadResult {
        match self {
            Self::Loaded(_, AnswerStorage::PrivateKey | AnswerStorage::PrivateOnce, _) => {
                LoadResult::Private
            }
            Self::Loaded(..) => LoadResult::Succeeded,
            Self::Failed(failed) => match failed.cause {
                FailureCause::Error => LoadResult::Failed,
                FailureCause::TimedOut => LoadResult::TimedOut,
                FailureCause::Panicked => LoadResult::Panicked,
            },
            Self::Abandoned => LoadResult::Cancelled,
        }
    }
}
