//! `#[derive(CacheKey)]`.

use bellwether::{CacheKey, Key};

#[derive(CacheKey)]
struct Isbn(u64);

#[derive(CacheKey)]
struct Rack<'a, T> {
    warehouse: &'a str,
    of: T,
}

#[derive(CacheKey)]
enum Page {
    Home,
    Shelf(u64, u64),
    Item { isbn: Isbn },
}

#[test]
fn a_derived_key_is_its_fields_and_the_name_of_its_variant() {
    let key = |it: Page| Key::of("page").with(it);
    assert_eq!(key(Page::Home), Key::of("page").with("Home"));
    assert_eq!(key(Page::Shelf(1, 2)), Key::of("page").with("Shelf").with(1).with(2));
    assert_eq!(key(Page::Item { isbn: Isbn(7) }), Key::of("page").with("Item").with(7));
    let shelf = Rack { warehouse: "berlin", of: Some(Isbn(7)) };
    assert_eq!(Key::of("shelf").with(&shelf), Key::of("shelf").with("berlin").with(Some(7)));
}
