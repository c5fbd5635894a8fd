//! `Changed`: a change of the source together with the invalidation of what is stored of it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;
use tracing::Instrument;

use crate::error::CacheError;

/// The source has changed. What became of the entries that are older:
///
/// ```
/// use bellwether::{Cache, Changed};
///
/// async fn rename(names: &Cache<u64, String>, id: u64) -> Result<(), std::io::Error> {
///     let write = async move { Ok(()) }; // UPDATE names .. WHERE id = $1
///     match names.change(id, write).await {
///         Ok(Changed::Invalidated(())) => Ok(()),       // no later caller gets the old name
///         Ok(Changed::Pending((), error)) => {
///             eprintln!("the old name may be served until the store is back: {error}");
///             Ok(())                                    // the change itself was made
///         }
///         Err(error) => Err(error),                     // the write failed
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the invalidation may be pending"]
#[allow(clippy::exhaustive_enums, reason = "an invalidation has happened or has not")]
pub enum Changed<T> {
    /// They are invalidated: no request that starts later gets one of them.
    Invalidated(T),
    /// The store failed. If the error [is kept](CacheError::is_kept), the store repeats the invalidation
    /// until it succeeds, and this process serves nothing of the key or the tag meanwhile. If not,
    /// invalidate again.
    Pending(T, CacheError),
}

impl<T> Changed<T> {
    /// What the write has returned.
    pub fn into_inner(self) -> T {
        match self {
            Self::Invalidated(written) | Self::Pending(written, _) => written,
        }
    }
}

/// Writes, then invalidates, in a task that its caller may leave. A write that fails or panics may have
/// reached the source, so it is followed by an invalidation, too.
pub async fn change<T: Send + 'static, E: Send + 'static>(
    write: impl Future<Output = Result<T, E>> + Send + 'static,
    invalidation: impl Future<Output = Result<(), CacheError>> + Send + 'static,
) -> Result<Changed<T>, E> {
    let both = async move {
        let written = AssertUnwindSafe(write).catch_unwind().await;
        (written, invalidation.await)
    };
    let (written, invalidated) = match tokio::spawn(both.in_current_span()).await {
        Ok((Ok(written), invalidated)) => (written?, invalidated),
        Ok((Err(panic), _)) => resume_unwind(panic),
        Err(ended) => resume_unwind(ended.into_panic()),
    };
    Ok(match invalidated {
        Ok(()) => Changed::Invalidated(written),
        Err(error) => Changed::Pending(written, error),
    })
}
