//! `Batched`: a batch loader behind a cache.

use crate::config_error::{ConfigError, within};

/// A batch loader as the loader of a cache: see [`load_many`](crate::ReadThrough::load_many).
///
/// The loader is a `Service<Vec<Req>>` whose response is [`BatchResponse`](crate::BatchResponse). Behind a
/// layer, [`load`](crate::ReadThrough::load) answers one request as a batch of one. So callers of
/// one item and callers of a page share one layer, its keys and its loads.
///
/// To limit how many calls run at once or how long they take, wrap the loader before it goes in
/// here.
#[derive(Clone, Debug)]
pub struct Batched<B> {
    loader: B,
    most: usize,
}

impl<B> Batched<B> {
    /// Wraps a loader.
    pub fn new(loader: B) -> Self {
        Self { loader, most: 1_000 }
    }

    /// Sets how many requests one call gets at most. Further requests go into further calls, which
    /// run at the same time.
    ///
    /// Default: 1,000, the longest `IN (..)` list that every common database accepts.
    ///
    /// # Errors
    /// If it is zero, or more than 1,000,000.
    pub fn at_most(mut self, most: usize) -> Result<Self, ConfigError> {
        self.most = within("batch size", most, 1, 1_000_000)?;
        Ok(self)
    }

    /// The loader.
    pub fn get_ref(&self) -> &B {
        &self.loader
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }
}
