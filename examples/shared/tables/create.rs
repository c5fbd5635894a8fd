//! Fills an empty database with the catalog.

use std::path::{Path, PathBuf};

use sqlx::{AnyConnection, Connection, Executor, Row};

use super::{Tables, settle, unreachable};
use crate::Fault;
use crate::catalog::{self, CATEGORIES, PRODUCTS, Product};

/// Rows of one statement.
const BATCH: u32 = 1_000;

/// The generation of the tables, in the name of the file, so that another one makes its own.
const GENERATION: &str = "catalog-v1.db";

impl Tables {
    /// Makes sure that the catalog is there, with an empty table beside it if `extra` makes one,
    /// and says where.
    pub(crate) async fn prepare(
        &self,
        url: Option<&str>,
        extra: Option<&str>,
    ) -> Result<String, Fault> {
        match url {
            Some(url) => self.fill(url, extra).await.map(|()| url.to_owned()),
            None => self.prepare_own_file(extra).await,
        }
    }

    /// Two runs may start at the same time: each builds a file of its own, and the first to be
    /// ready gives it the name.
    async fn prepare_own_file(&self, extra: Option<&str>) -> Result<String, Fault> {
        let name = format!("{}-{GENERATION}", self.owner);
        let file = std::env::current_exe()?.with_file_name(&name);
        if !file.exists() {
            let folder = file.parent().map_or_else(PathBuf::new, Path::to_owned);
            let draft = tempfile::Builder::new().prefix(&name).tempfile_in(folder)?;
            let draft = draft.into_temp_path();
            self.fill(&sqlite_url(&draft), extra).await?;
            if let Err(fault) = draft.persist_noclobber(&file) {
                file.exists().then_some(()).ok_or(fault.error)?;
            }
        }
        Ok(sqlite_url(&file))
    }

    /// With a connection of its own: unlike a pool it says at once if there is no server, and its
    /// end can be waited for.
    async fn fill(&self, url: &str, extra: Option<&str>) -> Result<(), Fault> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(url).await.map_err(unreachable)?;
        settle(&mut connection).await?;
        for table in self.definitions().iter().map(String::as_str).chain(extra) {
            connection.execute(table).await?;
        }
        match self.products(&mut connection).await? {
            0 => self.insert_all(&mut connection).await?,
            all if all == i64::from(PRODUCTS) => {}
            some => {
                return Err(format!(
                    "the table {}_product holds {some} products instead of {PRODUCTS}: drop it",
                    self.owner
                )
                .into());
            }
        }
        Ok(connection.close().await?)
    }

    fn definitions(&self) -> [String; 2] {
        let owner = self.owner;
        [
            format!(
                "CREATE TABLE IF NOT EXISTS {owner}_category (
                     id INTEGER PRIMARY KEY, parent_id INTEGER, name VARCHAR(100) NOT NULL)"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {owner}_product (
                     sku INTEGER PRIMARY KEY, category_id INTEGER NOT NULL,
                     name VARCHAR(100) NOT NULL, price_cents INTEGER NOT NULL,
                     stock INTEGER NOT NULL)"
            ),
        ]
    }

    async fn products(&self, connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
        let count = format!("SELECT COUNT(*) AS products FROM {}_product", self.owner);
        connection.fetch_one(&*count).await?.try_get("products")
    }

    async fn insert_all(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        let owner = self.owner;
        let mut transaction = connection.begin().await?;
        let categories =
            batches(format!("{owner}_category (id, parent_id, name)"), CATEGORIES, category_row);
        let products = batches(
            format!("{owner}_product (sku, category_id, name, price_cents, stock)"),
            PRODUCTS,
            product_row,
        );
        for statement in categories.chain(products) {
            transaction.execute(&*statement).await?;
        }
        transaction.commit().await
    }
}

/// A path in a URL, whatever is in the path.
fn sqlite_url(file: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let write = |byte: u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    let path: String = file.as_os_str().as_encoded_bytes().iter().copied().map(write).collect();
    format!("sqlite://{path}")
}

/// Statements with the values written out. They are numbers and words of ours, which need no
/// quoting.
fn batches(table: String, rows: u32, row: fn(u32) -> String) -> impl Iterator<Item = String> {
    (1..=rows).step_by(BATCH as usize).map(move |first| {
        let last = rows.min(first + BATCH - 1);
        let values: Vec<String> = (first..=last).map(row).collect();
        format!("INSERT INTO {table} VALUES {}", values.join(", "))
    })
}

fn category_row(id: u32) -> String {
    let parent =
        catalog::parent_of(id).map_or_else(|| "NULL".to_owned(), |parent| parent.to_string());
    format!("({id}, {parent}, '{}')", catalog::category_name(id))
}

fn product_row(sku: u32) -> String {
    let Product { name, price_cents, stock, .. } = Product::of(sku);
    format!("({sku}, {}, '{name}', {price_cents}, {stock})", catalog::shelf_of(sku))
}
