//! `InProcess`: values that are never encoded.

use bytes::Bytes;

use super::{Codec, EncodeBuffer};
use crate::error::BoxError;
use crate::status::CacheStatus;

/// Keeps any `Clone` answer as it is: an `Arc`, a compiled template, a connection. Nothing is encoded,
/// so nothing needs serde.
///
/// Only a store in this process can hold such values. So this codec cannot be given to a cache or a
/// layer: [`Cache::in_process`](crate::Cache::in_process) and
/// [`ReadThroughLayer::in_process`](crate::ReadThroughLayer::in_process) have it, and take an
/// [`InProcessStore`](crate::store::InProcessStore). With a shared store they do not compile.
///
/// A stored value counts its size on the stack, since what it points to is not known. So bound the
/// store by the number of its entries.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use bellwether::{Cache, MemoryStore};
/// use bellwether::codec::InProcess;
///
/// /// It could not be serialised.
/// struct Template(Box<dyn Fn(&str) -> String + Send + Sync>);
///
/// struct Site {
///     templates: Cache<String, Arc<Template>, InProcess>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(100);
/// let templates = Cache::in_process("template", store).ttl(Duration::from_secs(60)).build()?;
/// let site = Site { templates };
///
/// let compile = async || Ok::<_, std::io::Error>(Arc::new(Template(Box::new(|it| format!("<{it}>")))));
/// let template = site.templates.get_or_load("home", compile).await?;
/// assert_eq!((template.0)("p"), "<p>");
/// let again = site.templates.get("home").await?.expect("it is stored");
/// assert!(Arc::ptr_eq(&template, &again));
/// # Ok(())
/// # }
/// ```
///
/// With a store that other processes share, it does not compile:
///
/// ```compile_fail,E0277
/// # use bellwether::Cache;
/// # use bellwether::codec::InProcess;
/// # use bellwether_redis::RedisStore;
/// # fn templates(redis: RedisStore) {
/// let templates = Cache::<u64, fn(), InProcess>::in_process("template", redis);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct InProcess;

impl<Response: Clone + Send + Sync + 'static> Codec<Response> for InProcess {
    keeps_answers!();

    fn id(&self) -> u8 {
        6
    }

    fn encode(&self, _: &Response, _: &mut EncodeBuffer) -> Result<(), BoxError> {
        Ok(())
    }

    /// Never: the store has the value itself.
    fn decode(&self, _: &[u8]) -> Result<Response, BoxError> {
        Err("a value that was not encoded".into())
    }

    /// There are no bytes.
    fn verify(&self, _: &Response, _: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }

    fn weight(&self, _: &Response, _: &Bytes) -> usize {
        size_of::<Response>()
    }
}
