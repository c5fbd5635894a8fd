//! MySQL and MariaDB: their statements.

use std::future;

use sqlx::{Error, Executor, MySql, Pool};

use super::dialect::{BoundValue, Dialect, Statements, bound, run_statements, statements};

impl Dialect for MySql {
    const STATEMENTS: Statements = statements!("mysql");
    const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";

    fn schema(pool: &Pool<Self>) -> String {
        pool.connect_options().get_database().unwrap_or_default().to_owned()
    }

    fn listen(
        _: &Pool<Self>,
        _: impl Fn(bool) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        future::pending()
    }

    run_statements!();
}
