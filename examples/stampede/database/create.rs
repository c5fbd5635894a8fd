//! Fills an empty database with the catalog.

use std::path::{Path, PathBuf};

use sqlx::{AnyConnection, Connection, Executor, Row};

use super::{settle, unreachable};
use crate::Fault;
use crate::catalog::{self, CATEGORIES, PRODUCTS, Product};

/// Rows of one statement.
const BATCH: u32 = 1_000;

/// Says for what the file was made, so that another generation of this program makes its own.
const FILE: &str = "stampede-catalog-v1.db";

const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS stampede_category (
         id INTEGER PRIMARY KEY, parent_id INTEGER, name VARCHAR(100) NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stampede_product (
         sku INTEGER PRIMARY KEY, category_id INTEGER NOT NULL, name VARCHAR(100) NOT NULL,
         price_cents INTEGER NOT NULL, stock INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stampede_query (
         run VARCHAR(16) NOT NULL, way VARCHAR(16) NOT NULL,
         round INTEGER NOT NULL, sku INTEGER NOT NULL)",
];

/// Makes sure that the catalog is there, and says where.
pub(crate) async fn prepare(url: Option<&str>) -> Result<String, Fault> {
    match url {
        Some(url) => fill(url).await.map(|()| url.to_owned()),
        None => prepare_own_file().await,
    }
}

/// Two runs may start at the same time: each builds a file of its own, and the first to be ready
/// gives it the name.
async fn prepare_own_file() -> Result<String, Fault> {
    let file = std::env::current_exe()?.with_file_name(FILE);
    if !file.exists() {
        let folder = file.parent().map_or_else(PathBuf::new, Path::to_owned);
        let draft = tempfile::Builder::new().prefix(FILE).tempfile_in(folder)?.into_temp_path();
        fill(&sqlite_url(&draft)).await?;
        if let Err(fault) = draft.persist_noclobber(&file) {
            file.exists().then_some(()).ok_or(fault.error)?;
        }
    }
    Ok(sqlite_url(&file))
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

/// With a connection of its own: unlike a pool it says at once if there is no server, and its end
/// can be waited for.
async fn fill(url: &str) -> Result<(), Fault> {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.map_err(unreachable)?;
    settle(&mut connection).await?;
    for table in TABLES {
        connection.execute(table).await?;
    }
    match products(&mut connection).await? {
        0 => insert_all(&mut connection).await?,
        all if all == i64::from(PRODUCTS) => {}
        some => {
            return Err(format!(
                "the table stampede_product holds {some} products instead of {PRODUCTS}: drop it"
            )
            .into());
        }
    }
    Ok(connection.close().await?)
}

async fn products(connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
    connection
        .fetch_one("SELECT COUNT(*) AS products FROM stampede_product")
        .await?
        .try_get("products")
}

async fn insert_all(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let categories = batches("stampede_category (id, parent_id, name)", CATEGORIES, category_row);
    let products = batches(
        "stampede_product (sku, category_id, name, price_cents, stock)",
        PRODUCTS,
        product_row,
    );
    for statement in categories.chain(products) {
        transaction.execute(&*statement).await?;
    }
    transaction.commit().await
}

/// Statements with the values written out. They are numbers and words of ours, which need no
/// quoting.
fn batches(table: &'static str, rows: u32, row: fn(u32) -> String) -> impl Iterator<Item = String> {
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
