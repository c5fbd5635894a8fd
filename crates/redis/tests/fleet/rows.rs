//! The rows that a worker caches: how it asks for them, and loads them from the database.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether::service::ReadThrough;
use bellwether::{Key, ReadThroughLayer, Tag, Wait, WhenAbandoned};
use bellwether_redis::RedisStore;
use futures_util::future::BoxFuture;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service};

use crate::database::{Client, Query};
use crate::messages::Setup;

/// The service under test: rows through the cache.
pub(crate) type Rows = ReadThrough<Loader, fn(&Ask) -> Key>;

/// Rows through the cache, with a bound below it.
pub(crate) type LimitedRows = ReadThrough<ConcurrencyLimit<Loader>, fn(&Ask) -> Key>;

pub(crate) fn rows(store: &RedisStore, database: &Arc<Client>, setup: &Setup) -> Rows {
    let key_of: fn(&Ask) -> Key = |ask| key_of(ask.key);
    let wait = match setup.pause_ms {
        Some(pause) => Wait::tries(1, Duration::from_millis(pause)),
        None => Wait::at_most(LONG),
    };
    ReadThroughLayer::builder(store.clone(), key_of)
        .ttl(Duration::from_millis(setup.ttl_ms))
        .stale_if_error(Duration::from_millis(setup.stale_if_error_ms))
        .lease(Duration::from_millis(setup.lease_ms))
        .load_timeout(LONG)
        .wait(wait)
        .when_abandoned(match setup.cancels {
            true => WhenAbandoned::Cancel,
            false => WhenAbandoned::Finish,
        })
        .build()
        .expect("options")
        .layer(Loader::over(database))
}

pub(crate) fn key_of(key: u64) -> Key {
    Key::of("row").with(key)
}

/// A request, and the time of its load, if there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) key: u64,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Ask {
    pub(crate) fn of(key: u64) -> Self {
        let before = 0;
        let after = 0;
        Self { key, before, after }
    }
}

/// Asks the database.
#[derive(Clone, Debug)]
pub(crate) struct Loader(Arc<Client>);

impl Loader {
    pub(crate) fn over(database: &Arc<Client>) -> Self {
        Self(Arc::clone(database))
    }
}

impl Service<Ask> for Loader {
    type Response = u64;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<u64>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, Ask { key, before, after }: Ask) -> Self::Future {
        let client = Arc::clone(&self.0);
        Box::pin(async move { client.ask(Query::Load { key, before, after }).await })
    }
}

pub(crate) fn limited_rows(
    store: &RedisStore,
    database: &Arc<Client>,
    setup: &Setup,
) -> LimitedRows {
    let key: fn(&Ask) -> Key = |ask| key_of(ask.key);
    ReadThroughLayer::builder(store.clone(), key)
        .ttl(Duration::from_millis(setup.ttl_ms))
        .stale_while_revalidate(LONG)
        .lease(Duration::from_millis(setup.lease_ms))
        .load_timeout(LONG)
        .wait(Wait::at_most(LONG))
        .tags(|ask: &Ask| [tag_of_row(ask.key), tag_of_all()])
        .build()
        .expect("options")
        .layer(ConcurrencyLimit::new(Loader::over(database), LOADS_AT_ONCE))
}

pub(crate) fn tag_of_row(row: u64) -> Tag {
    Tag::of("row").with(row)
}

pub(crate) fn tag_of_all() -> Tag {
    Tag::of("all rows")
}

/// Longer than any test lasts.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// How many rows a process loads at once.
pub(crate) const LOADS_AT_ONCE: usize = 8;
