//! The stored answers of calls, by the cache.

use bellwether::{Tag, read_through};

use super::catalog::{Catalog, Item, Missing};

#[read_through(
    cache = catalog.items,
    key = (warehouse, sku),
    skip(catalog, hint),
    tags = [Tag::of("hall").with(warehouse)],
)]
async fn part(
    catalog: &Catalog,
    hint: &str,
    warehouse: &str,
    mut sku: u64,
) -> Result<Item, Missing> {
    sku += u64::try_from(hint.len()).unwrap_or_default();
    catalog.query(warehouse, sku).await
}

#[tokio::test]
async fn an_answer_is_found_by_the_arguments_of_its_call() {
    let catalog = Catalog::new();
    assert_eq!(catalog.items.get(("berlin", 42)).await.unwrap(), None);
    part(&catalog, "", "berlin", 42).await.unwrap();
    let stored = catalog.items.get(("berlin", 42)).await.unwrap();
    assert_eq!(stored, Some(Item::named("berlin 42")));
    assert_eq!(catalog.items.get(("berlin", 43)).await.unwrap(), None);
}

#[tokio::test]
async fn what_is_put_with_the_same_tags_is_served_without_a_load() {
    let catalog = Catalog::new();
    let hall = Tag::of("hall").with("berlin");
    let items = catalog.items.tagged([hall.clone()]);
    assert!(items.put(("berlin", 42), Item::named("written")).await.unwrap());
    let given = part(&catalog, "", "berlin", 42).await.unwrap();
    assert_eq!((given, catalog.queries()), (Item::named("written"), 0));
    items.handle().invalidate_tag(&hall).await.unwrap();
    assert_eq!(items.get(("berlin", 42)).await.unwrap(), None);
}
