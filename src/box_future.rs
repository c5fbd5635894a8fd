//! `BoxFuture`: a future in a box, as stores and locks answer with.

use std::future::Future;
use std::pin::Pin;

/// A future in a box, as stores and locks answer with.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
