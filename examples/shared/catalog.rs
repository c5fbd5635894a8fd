//! The product catalog, computed from a fixed seed.
//!
//! The database is filled from these functions, and every answer is compared with them: the right
//! answer is known without another query.

pub(crate) mod schema;

use serde::{Deserialize, Serialize};

/// Products in the catalog: their SKUs are 1 to this.
pub(crate) const PRODUCTS: u32 = 100_000;
/// Categories on all three levels: their ids are 1 to this.
pub(crate) const CATEGORIES: u32 = BRANCHES + BRANCHES * BRANCHES + SHELVES;

const BRANCHES: u32 = DEPARTMENTS.len() as u32;
const SHELVES: u32 = BRANCHES * BRANCHES * BRANCHES;
const FIRST_SHELF: u32 = CATEGORIES - SHELVES + 1;
const SEED: u64 = 0x0005_7a3b_ede5;

const DEPARTMENTS: [&str; 10] = [
    "Books", "Garden", "Kitchen", "Lighting", "Music", "Office", "Outdoor", "Sports", "Toys",
    "Workshop",
];
const AISLES: [&str; 10] = [
    "Basics",
    "Classics",
    "Compact",
    "Family",
    "Handmade",
    "New",
    "Professional",
    "Seasonal",
    "Spare parts",
    "Travel",
];
const MATERIALS: [&str; 10] =
    ["Ash", "Bamboo", "Brass", "Ceramic", "Cork", "Cotton", "Felt", "Glass", "Linen", "Steel"];
const THINGS: [&str; 12] = [
    "Basket", "Bell", "Board", "Bottle", "Box", "Clock", "Frame", "Hook", "Lamp", "Stand", "Tray",
    "Whistle",
];

/// What a caller asks for: one product with its categories, from the widest to the narrowest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Product {
    pub(crate) sku: u32,
    pub(crate) name: String,
    pub(crate) price_cents: i64,
    pub(crate) stock: i64,
    pub(crate) categories: [String; 3],
}

impl Product {
    pub(crate) fn of(sku: u32) -> Self {
        let shelf = shelf_of(sku);
        let aisle = parent_of(shelf).unwrap_or(shelf);
        let department = parent_of(aisle).unwrap_or(aisle);
        Self {
            sku,
            name: format!("{} {} no. {sku}", pick(&MATERIALS, sku, 1), pick(&THINGS, sku, 2)),
            price_cents: 99 + draw(sku, 3, 49_900),
            stock: draw(sku, 4, 500),
            categories: [department, aisle, shelf].map(category_name),
        }
    }
}

/// The category a product stands in, on the lowest level.
pub(crate) fn shelf_of(sku: u32) -> u32 {
    FIRST_SHELF + draw(sku, 5, SHELVES) as u32
}

/// The category above, or none for a department.
pub(crate) fn parent_of(category: u32) -> Option<u32> {
    (category > BRANCHES).then(|| (category - BRANCHES - 1) / BRANCHES + 1)
}

pub(crate) fn category_name(category: u32) -> String {
    let last = (category - 1) % BRANCHES;
    match parent_of(category).map(|parent| (parent, parent_of(parent))) {
        None => DEPARTMENTS[last as usize].to_owned(),
        Some((parent, None)) => format!("{}: {}", category_name(parent), AISLES[last as usize]),
        Some((parent, Some(_))) => {
            format!("{}: {}", category_name(parent), MATERIALS[last as usize])
        }
    }
}

fn pick(words: &[&'static str], sku: u32, field: u64) -> &'static str {
    words[draw(sku, field, words.len() as u32) as usize]
}

/// A number below `bound` for one field of one product: SplitMix64, which will be the same in ten
/// years.
fn draw(sku: u32, field: u64, bound: u32) -> i64 {
    let mut mixed =
        SEED.wrapping_add((u64::from(sku) << 8 | field).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % u64::from(bound)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shelf_stands_in_an_aisle_of_a_department() {
        for shelf in FIRST_SHELF..=CATEGORIES {
            let aisle = parent_of(shelf).unwrap();
            let department = parent_of(aisle).unwrap();
            assert!(department <= BRANCHES && parent_of(department).is_none());
        }
    }

    #[test]
    fn the_catalog_is_the_same_on_every_machine() {
        let product = Product::of(42);
        assert_eq!(product.name, "Linen Board no. 42");
        assert_eq!(product.price_cents, 6_074);
        assert_eq!(product.categories, ["Garden", "Garden: Seasonal", "Garden: Seasonal: Bamboo"]);
    }
}
