//! The tables of the catalog, as SQL for SQLite, PostgreSQL and MySQL.
//!
//! Each program has tables of its own, by its name, so that one may change what another compares
//! its answers with.

mod own_file;

pub(crate) use self::own_file::OwnFile;

use super::{CATEGORIES, PRODUCTS, Product, category_name, parent_of, shelf_of};

/// Rows of one statement.
const BATCH: u32 = 1_000;

/// The generation of the tables, in the name of the file, so that another one makes its own.
const GENERATION: &str = "catalog-v1.db";

/// SQLite has to be configured so that writers may wait for each other, and that this data need not
/// survive a power cut.
pub(crate) const SQLITE_PRAGMAS: [&str; 3] =
    ["PRAGMA busy_timeout = 60000", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF"];

/// The tables of one program.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    /// What their names begin with.
    owner: &'static str,
}

impl Tables {
    pub(crate) const fn of(owner: &'static str) -> Self {
        Self { owner }
    }

    /// The name of the SQLite file beside the program.
    pub(crate) fn file_name(self) -> String {
        format!("{}-{GENERATION}", self.owner)
    }

    /// Reads products with their categories. A caller appends its condition.
    pub(crate) fn select_products(self) -> String {
        let owner = self.owner;
        format!(
            "SELECT product.sku, product.name, product.price_cents, product.stock,
                    department.name AS department, aisle.name AS aisle, shelf.name AS shelf
             FROM {owner}_product product
             JOIN {owner}_category shelf ON shelf.id = product.category_id
             JOIN {owner}_category aisle ON aisle.id = shelf.parent_id
             JOIN {owner}_category department ON department.id = aisle.parent_id"
        )
    }

    pub(crate) fn definitions(self) -> [String; 2] {
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

    pub(crate) fn count_products(self) -> String {
        format!("SELECT COUNT(*) AS products FROM {}_product", self.owner)
    }

    /// Whether the table of products has to be filled, if it holds this many.
    pub(crate) fn is_empty(self, products: i64) -> Result<bool, String> {
        match products {
            0 => Ok(true),
            all if all == i64::from(PRODUCTS) => Ok(false),
            some => Err(format!(
                "the table {}_product holds {some} products instead of {PRODUCTS}: drop it",
                self.owner
            )),
        }
    }

    /// The statements that fill the tables.
    pub(crate) fn insertions(self) -> impl Iterator<Item = String> {
        let owner = self.owner;
        let categories =
            batches(format!("{owner}_category (id, parent_id, name)"), CATEGORIES, category_row);
        let products = batches(
            format!("{owner}_product (sku, category_id, name, price_cents, stock)"),
            PRODUCTS,
            product_row,
        );
        categories.chain(products)
    }
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
    let parent = parent_of(id).map_or_else(|| "NULL".to_owned(), |parent| parent.to_string());
    format!("({id}, {parent}, '{}')", category_name(id))
}

fn product_row(sku: u32) -> String {
    let Product { name, price_cents, stock, .. } = Product::of(sku);
    format!("({sku}, {}, '{name}', {price_cents}, {stock})", shelf_of(sku))
}
