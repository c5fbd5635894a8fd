//! The values that the benchmarks store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An answer as services give them: some text, some numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Product {
    sku: u64,
    name: String,
    description: String,
    cents: u32,
    stock: u32,
}

impl Product {
    pub(crate) fn new(sku: u64) -> Self {
        let name = format!("product {sku}");
        let description = "Solid oak, oiled by hand. Seats six.".to_owned();
        Self { sku, name, description, cents: 129_900, stock: 17 }
    }

    pub(crate) fn sku(&self) -> u64 {
        self.sku
    }

    /// One whose JSON is this long, by a long description.
    pub(crate) fn of_json_len(sku: u64, len: usize) -> Self {
        let mut product = Self { description: String::new(), ..Self::new(sku) };
        let text = "Solid oak, oiled by hand. Seats six. ".chars().cycle();
        product.description = text.take(len - json(&product).len()).collect();
        product
    }
}

/// An answer of many small things.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shelf {
    products: Vec<Product>,
    name: String,
}

impl Shelf {
    /// One whose JSON is this long, by its many products.
    pub(crate) fn of_json_len(first: u64, len: usize) -> Self {
        let mut shelf = Self { products: Vec::new(), name: String::new() };
        let room = len - json(&Product::new(first)).len();
        while json(&shelf).len() < room {
            shelf.products.push(Product::new(first + shelf.products.len() as u64));
        }
        if json(&shelf).len() > len {
            shelf.products.pop();
        }
        shelf.name = "-".repeat(len - json(&shelf).len());
        shelf
    }
}

/// An answer that is cheap to clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct Page(Arc<str>);

impl From<String> for Page {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<Page> for String {
    fn from(page: Page) -> Self {
        page.0.as_ref().to_owned()
    }
}

pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it has no map with odd keys")
}
