//! PostgreSQL: its statements, and its messages.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Error, Executor, Pool, Postgres};
use tokio::time::sleep;

use super::dialect::{BoundValue, Dialect, Statements, bound, run_statements, statements};

impl Dialect for Postgres {
    const STATEMENTS: Statements = statements!("postgres");
    /// The server gives back what a follower has taken that is frozen, or whose machine is gone.
    const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '30s'";

    fn schema(_: &Pool<Self>) -> String {
        "public".to_owned()
    }

    /// Connects again for ever, beside the pool. The first message of each connection is that there may have been some.
    fn listen(
        pool: &Pool<Self>,
        heard: impl Fn(bool) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let options = (*pool.connect_options()).clone();
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        async move {
            loop {
                if let Ok(mut listener) = PgListener::connect_with(&pool).await
                    && listener.listen("bellwether_changes").await.is_ok()
                {
                    heard(true);
                    while let Ok(Some(_)) = listener.try_recv().await {
                        heard(true);
                    }
                    heard(false);
                }
                sleep(Duration::from_secs(1)).await;
            }
        }
    }

    run_statements!();
}
