//! Named locks: `GET_LOCK`.

use std::fmt;
use std::future;
use std::time::Duration;

use bellwether::StoreErrorKind;
use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use tokio::time::Instant;

use super::MySqlOptions;
use super::fence;
use super::link::{Link, Waiting};
use super::trouble::{malformed, meaning};
use crate::session::{Database, Held, Name, Trouble};

/// The names of a server.
pub(super) struct Named(MySqlOptions);

impl Named {
    pub(super) fn new(options: MySqlOptions) -> Self {
        Self(options)
    }
}

impl Database for Named {
    const NAME: &'static str = "mysql";

    type Link = Link;
    type Interrupt = Waiting;

    async fn connect(&self) -> Result<Link, Trouble> {
        Link::open(&self.0).await
    }

    async fn prepare(&self, link: &mut Link) -> Result<(), Trouble> {
        fence::prepare(link).await
    }

    async fn take(
        &self,
        link: &mut Link,
        name: &Name,
        patience: Duration,
    ) -> Result<Option<Held>, Trouble> {
        let (seconds, mark) = (patience.as_secs_f64(), link.mark);
        let take = format!("SELECT GET_LOCK('{name}', {seconds:.3}) /* {mark} */");
        match link.last(&take).await?.ok_or_else(malformed)?.number()? {
            Some(1) => {}
            Some(_) => return Ok(None),
            None => {
                let said = "GET_LOCK gave NULL: it was interrupted, or the server lacks memory";
                return Err(Trouble::refused(StoreErrorKind::NotReady, said));
            }
        }
        let asked = Instant::now();
        let fence = fence::next(link).await?;
        Ok(Some(Held { fence, asked }))
    }

    async fn holds(&self, link: &mut Link, name: &Name) -> Result<bool, Trouble> {
        let holds = format!("SELECT IS_USED_LOCK('{name}') = CONNECTION_ID()");
        Ok(link.last(&holds).await?.ok_or_else(malformed)?.number()? == Some(1))
    }

    async fn free(&self, link: &mut Link, name: &Name) -> Result<bool, Trouble> {
        // The session holds no other name, and nothing else was changed in it.
        let free = format!("SELECT RELEASE_LOCK('{name}')");
        Ok(link.last(&free).await?.ok_or_else(malformed)?.number()? == Some(1))
    }

    async fn ping(&self, link: &mut Link) -> Result<(), Trouble> {
        link.conn.ping().await.map_err(meaning)
    }

    fn interrupt_of(&self, link: &Link) -> Waiting {
        link.waiting()
    }

    async fn interrupt(&self, of: Waiting) {
        if let Err(trouble) = of.interrupt(&self.0).await {
            tracing::debug!(?trouble, "a wait in mysql was not interrupted");
        }
    }

    /// It is not: a connection that nobody reads from tells of nothing.
    fn ended(_: &Link) -> BoxFuture<'static, ()> {
        Box::pin(future::pending())
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
