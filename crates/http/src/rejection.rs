//! `CacheRejection`: an error of a cache as a response of axum.

use axum::response::{IntoResponse, Response};
use bellwether::adapter::warn_throttled;
use bellwether::{CacheError, Error};
use http::StatusCode;

use super::refusal;

/// An error of a [`Cache`](bellwether::Cache) or of a service behind a layer, as a response of axum.
/// A handler returns it by `?`:
///
/// ```
/// use axum::Json;
/// use axum::extract::{Path, State};
/// use bellwether::Cache;
/// use bellwether_http::CacheRejection;
/// # async fn query(sku: u64) -> Result<String, std::io::Error> { Ok(format!("item {sku}")) }
///
/// async fn item(
///     State(items): State<Cache<String>>,
///     Path(sku): Path<u64>,
/// ) -> Result<Json<String>, CacheRejection> {
///     Ok(Json(items.get_or_load(sku, async move || query(sku).await).await?))
/// }
/// # let _ = axum::Router::<Cache<String>>::new().route("/{sku}", axum::routing::get(item));
/// ```
///
/// | error | status |
/// |---|---|
/// | of the class [`NotFound`](bellwether::ErrorClass::NotFound), here or in another process | 404 |
/// | any other error of the loader, its panic, or a load that was lost | 502 |
/// | a load, a wait or a deadline that took too long | 504 |
/// | a load that failed a moment ago, a bound that is reached, a store that failed | 503 |
/// | a key that is too long, or no runtime | 500 |
///
/// The body says which of these it is. It has no text of the error, which may hold secrets and is
/// logged instead.
#[derive(Debug)]
pub struct CacheRejection {
    status: StatusCode,
    text: &'static str,
}

impl CacheRejection {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl<E> From<Error<E>> for CacheRejection {
    fn from(error: Error<E>) -> Self {
        match error {
            error if error.is_not_found() => {
                Self { status: StatusCode::NOT_FOUND, text: "there is no such thing\n" }
            }
            Error::Load(error) => {
                warn_throttled!(target: "bellwether::http", %error, "a load failed");
                Self { status: StatusCode::BAD_GATEWAY, text: "the source failed\n" }
            }
            Error::Cache(error) => error.into(),
        }
    }
}

impl From<CacheError> for CacheRejection {
    fn from(error: CacheError) -> Self {
        warn_throttled!(target: "bellwether::http", %error, "the cache has no answer");
        let (status, text, _) = refusal::reason(&error);
        Self { status, text }
    }
}

impl IntoResponse for CacheRejection {
    fn into_response(self) -> Response {
        (self.status, self.text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bellwether::{Cache, CacheErrorKind, ErrorClass, MemoryStore};

    use super::*;

    fn status_of(kind: CacheErrorKind) -> u16 {
        let error: Error<std::fmt::Error> = CacheError::new(kind, "secret").into();
        CacheRejection::from(error).into_response().status().as_u16()
    }

    #[test]
    fn each_kind_of_error_has_its_status() {
        assert_eq!(status_of(CacheErrorKind::NotFound), 404);
        assert_eq!(status_of(CacheErrorKind::WaitTimedOut), 504);
        assert_eq!(status_of(CacheErrorKind::Full), 503);
        assert_eq!(status_of(CacheErrorKind::LoaderPanicked), 502);
        assert_eq!(status_of(CacheErrorKind::KeyTooLong), 500);
    }

    #[tokio::test]
    async fn an_error_of_the_loader_is_a_404_if_the_program_says_that_there_is_none() {
        for (class, status) in [(ErrorClass::NotFound, 404), (ErrorClass::Failure, 502)] {
            let cache: Cache<u64> = Cache::builder("item", MemoryStore::new(10))
                .ttl(Duration::from_secs(60))
                .classify_error(move |_: &std::fmt::Error| class)
                .build();
            let error = cache.get_or_load(1, async || Err(std::fmt::Error)).await.unwrap_err();
            assert_eq!(CacheRejection::from(error).status(), status);
        }
    }
}
