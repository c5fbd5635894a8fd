//! Fills an empty database with the catalog.

use sqlx::{AnyConnection, Connection, Executor, Row};

use super::{Tables, settle, unreachable};
use crate::Fault;
use crate::catalog::schema::OwnFile;

impl Tables {
    /// Makes sure that the catalog is there, with an empty table beside it if `extra` makes one,
    /// and says where.
    pub(crate) async fn prepare(
        self,
        url: Option<&str>,
        extra: Option<&str>,
    ) -> Result<String, Fault> {
        if let Some(url) = url {
            self.fill(url, extra).await?;
            return Ok(url.to_owned());
        }
        let own = OwnFile::find(&self.file_name())?;
        if let Some(draft) = own.draft() {
            self.fill(&draft, extra).await?;
        }
        own.filled()
    }

    /// With a connection of its own: unlike a pool it says at once if there is no server, and its
    /// end can be waited for.
    async fn fill(self, url: &str, extra: Option<&str>) -> Result<(), Fault> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(url).await.map_err(unreachable)?;
        settle(&mut connection).await?;
        for table in self.definitions().iter().map(String::as_str).chain(extra) {
            connection.execute(table).await?;
        }
        let products = connection.fetch_one(&*self.count_products()).await?.try_get("products")?;
        if self.is_empty(products)? {
            let mut transaction = connection.begin().await?;
            for statement in self.insertions() {
                transaction.execute(&*statement).await?;
            }
            transaction.commit().await?;
        }
        Ok(connection.close().await?)
    }
}
